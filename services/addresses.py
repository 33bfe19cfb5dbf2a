"""Where a request comes from, as far as that can be known.

That is the address at the other end of the connection. Behind a proxy it is the proxy's, unless
GHOSTED_TRUSTED_PROXIES names it: then uvicorn takes the client's from the proxy's X-Forwarded-For. From
anybody else that header is a stranger's word, and nobody reads it.
"""

from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Request

# What one customer of a provider has of IPv6, and may send from as it likes.
OWN_PREFIX = 64


def address_of(request: Request) -> str:
    """What counts as one sender: the IPv4 address, or the network of the IPv6 address."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Network((address, OWN_PREFIX), strict=False))
    return str(address)
