"""A collector on loopback that takes traces as OTLP protobuf over HTTP."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A span as it arrived."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    attributes: dict[str, str]


@dataclass
class CollectorDouble:
    """What arrived, and where to send it."""

    endpoint: str = ""
    spans: list[Seen] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)

    def named(self, name: str) -> Seen:
        """The one span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found


@contextmanager
def running_collector() -> Iterator[CollectorDouble]:
    """A collector that listens for as long as the block runs."""
    collector = CollectorDouble()
    handler = type("Handler", (_Handler,), {"collector": collector})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    collector: CollectorDouble

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.collector.paths.add(self.path)
        self.collector.spans.extend(_read(ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _read(request: Any) -> Iterator[Seen]:
    for resource in request.resource_spans:
        service = _plain(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Seen(
                    service,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    _plain(span.attributes),
                )


def _plain(attributes: Any) -> dict[str, str]:
    return {
        one.key: str(getattr(one.value, one.value.WhichOneof("value") or "string_value"))
        for one in attributes
    }
