import re
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ghosted_core.errors import InvalidSpecError
from services.telemetry import NoTracing, SdkTracing, open_tracing

FORM = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def test_without_an_endpoint_nothing_is_traced() -> None:
    """Spans are there to be written down, and cost nothing."""
    tracing = open_tracing(None, "x")
    with tracing.span("a"):
        assert (tracing.traceparent(), tracing.trace_id()) == (None, None)
    assert isinstance(tracing, NoTracing)


@pytest.mark.parametrize("module", ["services.app", "services.outbox.__main__", "worker.__main__"])
def test_without_an_endpoint_the_sdk_is_not_imported(module: str) -> None:
    """No process loads OpenTelemetry's SDK or exporter, or protobuf, before a trace is wanted."""
    code = (
        f"import sys, {module}\nfrom services.telemetry import open_tracing\nopen_tracing(None, 'x')\n"
        # redis-py loads what it finds of the SDK's metrics by itself.
        "ours = {'opentelemetry.sdk.trace', 'opentelemetry.exporter', 'google.protobuf'}\n"
        "found = ours & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_the_extra_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot trace as it was told does not start, and says what is missing."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidSpecError) as caught:
        open_tracing("http://127.0.0.1:1", "x")
    assert "ghosted[telemetry]" in caught.value.hint


def test_a_trace_goes_on_elsewhere() -> None:
    """A span whose parent's context was stored belongs to the same trace, below that parent."""
    sent = InMemorySpanExporter(), InMemorySpanExporter()
    first, second = SdkTracing("one", sent[0]), SdkTracing("two", sent[1])
    with first.span("a"):
        stored = first.traceparent()
    assert stored is not None
    assert FORM.fullmatch(stored)
    with second.span("b", parent=stored, attributes={"ghosted.attempt": 2}):
        pass
    first.close()
    second.close()
    (outer,), (inner,) = (exporter.get_finished_spans() for exporter in sent)
    assert inner.parent is not None
    assert (inner.parent.span_id, inner.context.trace_id) == (outer.context.span_id, outer.context.trace_id)
    assert (inner.attributes or {})["ghosted.attempt"] == 2


def test_what_is_no_context_begins_a_trace(exporter: InMemorySpanExporter) -> None:
    """A stranger's header that is not of the form is ignored."""
    tracing = SdkTracing("one", exporter)
    for wrong in ("", "x" * 10_000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\x00"):
        with tracing.span("a", parent=wrong):
            pass
    tracing.close()
    assert all(span.parent is None for span in exporter.get_finished_spans())


def test_a_failed_span_does_not_repeat_the_words(exporter: InMemorySpanExporter) -> None:
    """An exception marks its span with its type; its message may hold what nobody else should read."""
    tracing = SdkTracing("one", exporter)

    def fail() -> None:
        with tracing.span("a"):
            raise ZeroDivisionError("hush")

    with pytest.raises(ZeroDivisionError):
        fail()
    tracing.close()
    (span,) = exporter.get_finished_spans()
    assert span.status.description == "ZeroDivisionError"
    assert "hush" not in span.to_json()
