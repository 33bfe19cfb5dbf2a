"""A server before the service, or before the object store, that does to requests what a test asks for."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

HOP = {"connection", "transfer-encoding", "keep-alive", "content-encoding"}


@dataclass(frozen=True)
class Answer:
    """An answer that the server behind never hears of."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Cut:
    """The answer breaks off after so many bytes; the server behind has done its work."""

    after_bytes: int


Fault = Answer | Cut


@dataclass(frozen=True)
class Heard:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    at: float = field(default_factory=time.monotonic)


@dataclass
class Front:
    """Where it listens, what it heard, and what it does to the next requests that `fits`."""

    url: str
    upstream: str
    heard: list[Heard] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    fits: Callable[[Heard], bool] = lambda _: True
    meeting: threading.Barrier | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault_for(self, request: Heard) -> Fault | None:
        """What happens to the request; each fault happens once."""
        with self.lock:
            self.heard.append(request)
            return self.faults.pop(0) if self.faults and self.fits(request) else None

    def of(self, method: str, ending: str = "") -> list[Heard]:
        """The requests of that method, with that end of the path."""
        return [one for one in self.heard if one.method == method and one.path.endswith(ending)]


class Server(ThreadingHTTPServer):
    """Serves a front; threads end with the process, because a stream may outlive its test."""

    daemon_threads = True
    front: Front


class Handler(BaseHTTPRequestHandler):
    """Hears of a request, and answers or forwards it."""

    server: Server

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Heard(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
        front = self.server.front
        fault = front.fault_for(request)
        if front.meeting is not None:
            front.meeting.wait(60)
        if isinstance(fault, Answer):
            self._begin(fault.status, fault.headers)
            self.wfile.write(fault.body)
        else:
            self._forward(request, content, fault)

    do_POST = do_DELETE = do_PUT = do_GET  # noqa: N815  The names that the library looks for.

    def _forward(self, request: Heard, content: bytes, cut: Cut | None) -> None:
        # The Host stays: links are signed for it.
        headers = {k: v for k, v in request.headers.items() if k not in HOP}
        url = self.server.front.upstream + request.path
        with httpx2.stream(request.method, url, headers=headers, content=content, timeout=60) as answer:
            if cut == Cut(0):
                answer.read()
                return
            self._begin(answer.status_code, answer.headers)
            self._pass_on(answer, cut)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.end_headers()

    def _pass_on(self, answer: httpx2.Response, cut: Cut | None) -> None:
        sent = 0
        for piece in answer.iter_raw():
            part = piece if cut is None else piece[: cut.after_bytes - sent]
            self.wfile.write(part)
            self.wfile.flush()
            sent += len(part)
            if cut is not None and sent == cut.after_bytes:
                return

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, httpx2.TransportError):
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def standing_before(upstream: str) -> Iterator[Front]:
    """A front of `upstream`, on loopback."""
    server = Server(("127.0.0.1", 0), Handler)
    server.front = Front(f"http://127.0.0.1:{server.server_port}", upstream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.front
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
