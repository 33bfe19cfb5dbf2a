"""Traces, where an endpoint is set; otherwise nothing, at the cost of nothing.

The SDK is the extra `telemetry` and is imported only when a trace is wanted. A job's trace begins
with the request that submitted it; the row holds its context, so that every attempt belongs to it.
No span holds what a user wrote: ids, routes, stages and codes only.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Literal, Protocol

from ghosted_core.errors import InvalidSpecError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

Kind = Literal["internal", "server", "producer", "consumer"]
Attributes = Mapping[str, str | int]
EXPORT_TIMEOUT_SECONDS = 5.0
HEADER = "traceparent"


class Tracing(Protocol):
    """Makes spans."""

    def span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        parent: str | None = None,
        attributes: Attributes | None = None,
    ) -> AbstractContextManager[None]:
        """While the block runs, so does a span; below `parent` (a W3C traceparent) or the current one."""

    def traceparent(self) -> str | None:
        """The current span, for those who go on elsewhere."""

    def trace_id(self) -> str | None:
        """The current trace, for the logs."""

    def say(self, attributes: Attributes) -> None:
        """The current span has these attributes too."""

    def close(self) -> None:
        """What was traced has been sent, or given up."""


class NoTracing:
    """Where no endpoint is set."""

    def span(
        self,
        name: str,  # noqa: ARG002 - the protocol's
        *,
        kind: Kind = "internal",  # noqa: ARG002
        parent: str | None = None,  # noqa: ARG002
        attributes: Attributes | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def traceparent(self) -> str | None:
        """There is none."""
        return None

    def trace_id(self) -> str | None:
        """There is none."""
        return None

    def say(self, attributes: Attributes) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class SdkTracing:
    """Spans of the OpenTelemetry SDK, sent by `exporter` from a thread of its own.

    Nothing global is set, so that libraries which would trace on their own do not.
    """

    def __init__(self, service: str, exporter: "SpanExporter") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # shutdown_on_exit would wait for a collector that is away, after everything else has ended.
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("ghosted")

    @contextmanager
    def span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        parent: str | None = None,
        attributes: Attributes | None = None,
    ) -> Iterator[None]:
        """While the block runs, so does a span; an exception marks it with its type, not its words."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        with self._tracer.start_as_current_span(
            name,
            context=_context(parent),
            kind=SpanKind[kind.upper()],
            attributes=dict(attributes or {}),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def traceparent(self) -> str | None:
        """The current span as a W3C traceparent."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get(HEADER)

    def trace_id(self) -> str | None:
        """The current trace in hexadecimal."""
        span = self._current()
        return None if span is None else format(span.get_span_context().trace_id, "032x")

    def say(self, attributes: Attributes) -> None:
        """The current span has these attributes too."""
        span = self._current()
        if span is not None:
            span.set_attributes(dict(attributes))

    def close(self) -> None:
        """What was traced has been sent, or given up."""
        self._provider.shutdown()

    def _current(self) -> "Span | None":
        from opentelemetry.trace import get_current_span

        span = get_current_span()
        return span if span.get_span_context().is_valid else None


def _context(parent: str | None) -> "Context | None":
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # What is not of the form is ignored, and a trace of its own begins.
    return None if parent is None else TraceContextTextMapPropagator().extract({HEADER: parent})


def open_tracing(endpoint: str | None, service: str) -> Tracing:
    """Traces to the OTLP/HTTP collector at `endpoint`, or none without one.

    Raises:
        InvalidSpecError: the extra `telemetry` is not installed.
    """
    if not endpoint:
        return NoTracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise InvalidSpecError(
            "GHOSTED_OTLP_ENDPOINT is set, but OpenTelemetry is not installed.",
            advice="Install ghosted[telemetry], or leave the setting empty.",
        ) from error
    address = f"{endpoint.rstrip('/')}/v1/traces"
    return SdkTracing(service, OTLPSpanExporter(endpoint=address, timeout=EXPORT_TIMEOUT_SECONDS))
