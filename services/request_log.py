"""Every request has an id, a line in the log and, where traces are wanted, a span."""

import logging
import re
import time
from dataclasses import dataclass
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from services.telemetry import HEADER, NoTracing, Tracing
from services.toolbox import Toolbox

REQUEST_ID = "X-Request-ID"
# In the scope, for answers that are made outside of this middleware.
SCOPE_KEY = "ghosted.request_id"
# A stranger's text goes to the logs, so it is short and has no room for tricks.
ACCEPTED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UNKNOWN_ROUTE = "(none)"
# Probes come every few seconds and say nothing new.
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})

logger = logging.getLogger(__name__)


def request_id(given: str | None) -> str:
    """The id that the sender gave, if it is one that we take, else a fresh one."""
    return given if given is not None and ACCEPTED.fullmatch(given) else uuid4().hex


@dataclass
class Answered:
    """What is known of the answer so far."""

    status: int = 500


class RequestLog:
    """The outermost layer: accepts `X-Request-ID` or makes one, binds it for the logs, and returns it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope[SCOPE_KEY] = request_id(headers.get(REQUEST_ID))
        tracing = _tracing(scope)
        method = scope["method"]
        with (
            tracing.span(f"{method} request", kind="server", parent=headers.get(HEADER)),
            bound_contextvars(request_id=scope[SCOPE_KEY], **_traced(tracing)),
        ):
            await self._serve(scope, receive, send, tracing)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, tracing: Tracing) -> None:
        answered = Answered()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = scope[SCOPE_KEY]
            await send(message)

        begun = time.perf_counter()
        try:
            await self.app(scope, receive, sending)
        finally:
            _tell(scope, answered, time.perf_counter() - begun, tracing)


def _tell(scope: Scope, answered: Answered, seconds: float, tracing: Tracing) -> None:
    # The route's template, not the path: ids belong into no label and no name.
    route = getattr(scope.get("route"), "path_format", UNKNOWN_ROUTE)
    tracing.say(
        {
            "http.request.method": scope["method"],
            "http.route": route,
            "http.response.status_code": answered.status,
        }
    )
    fields = {"method": scope["method"], "route": route, "status": answered.status}
    level = logging.DEBUG if route in QUIET else logging.INFO
    logger.log(level, "request", extra={"fields": {**fields, "seconds": round(seconds, 6)}})


def _tracing(scope: Scope) -> Tracing:
    tools = getattr(scope["app"].state, "toolbox", None) if "app" in scope else None
    return tools.tracing if isinstance(tools, Toolbox) else NoTracing()


def _traced(tracing: Tracing) -> dict[str, str]:
    found = tracing.trace_id()
    return {} if found is None else {"trace_id": found}
