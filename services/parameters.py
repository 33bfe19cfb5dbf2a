"""Query parameters that an operation does not have are refused: a misspelled filter must not list all."""

from fastapi import Request

from services.errors import InvalidRequestError

VERSIONED = "/v1/"


def check_parameters(request: Request) -> None:
    """Return if the operation has every query parameter of `request`; probes may send what they like.

    Raises:
        InvalidRequestError: it has not.
    """
    if not request.query_params or not request.url.path.startswith(VERSIONED):
        return
    operation = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    known = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    for name in request.query_params:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise InvalidRequestError(
                f"there is no query parameter of this name; there are: {listed}", field=name[:80]
            )
