"""What counts as one sender."""

import pytest
from fastapi import Request

from services.addresses import address_of


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8::1", 1), "2001:db8::/64"),
        (("2001:db8::ffff:1", 1), "2001:db8::/64"),
        (("::ffff:192.0.2.7", 1), "192.0.2.7"),
        (("testclient", 1), "testclient"),
        (None, ""),
    ],
)
def test_an_address_is_one_sender(client: tuple[str, int] | None, counted: str) -> None:
    """Of IPv6 the network that a customer has; an IPv4 address is itself, however it is written."""
    assert address_of(Request({"type": "http", "client": client, "headers": []})) == counted
