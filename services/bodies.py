"""Reads the request's body before anything else does, so that no handler meets too much of it."""

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.errors import BodyTooLargeError, MediaTypeError, ServiceError
from services.parameters import VERSIONED
from services.problems import respond

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


class BodyGuard:
    """Lets JSON and the dashboard's forms of at most `max_bytes` through; the rest is answered 413 or 415."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            body = await self._read(headers, receive)
            _check_media_type(scope["path"], headers, body)
        except ServiceError as error:
            await respond(error)(scope, receive, send)
            return
        except ClientDisconnect:
            # Half a body is not a request, and nobody waits for an answer.
            return
        await self.app(scope, _replay(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        stated = headers.get("content-length", "0")
        if stated.isdecimal() and int(stated) > self.max_bytes:
            raise self._too_large()
        # What is stated need not be true, and chunked bodies state nothing: count.
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self.max_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"the body is longer than {self.max_bytes} bytes")


def _check_media_type(path: str, headers: Headers, body: bytes) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    # Forms are for the dashboard: to the API any site could send them.
    taken = {JSON} if path.startswith(VERSIONED) else {JSON, FORM}
    if body and kind not in taken:
        raise MediaTypeError(f"the body is said to be '{kind}'")


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed
