"""How long the API waits for a config.json, by a Hub on loopback that takes its time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ghosted_core.errors import HubUnavailableError
from ghosted_core.spec import HubModel
from services.hub import read_config

PATIENCE_SECONDS = 0.4
PAUSE_SECONDS = 0.15


class _Dripping(BaseHTTPRequestHandler):
    """A few bytes at a time, for three seconds."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "20")
        self.end_headers()
        try:
            for _ in range(20):
                self.wfile.write(b" ")
                time.sleep(PAUSE_SECONDS)
        except OSError:
            return  # The client has left, as it should.

    def log_message(self, *_: Any) -> None:
        pass


class _Redirecting(_Dripping):
    """One hop after another, each a little late."""

    def do_GET(self) -> None:
        time.sleep(PAUSE_SECONDS)
        self.send_response(302)
        self.send_header("Location", self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on loopback for as long as the block runs; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("handler", [_Dripping, _Redirecting])
def test_the_patience_holds_for_the_whole_answer(handler: type[BaseHTTPRequestHandler]) -> None:
    """Neither small pieces nor redirects, each in time by itself, make the whole take longer."""
    with answering(handler) as address:
        began = time.monotonic()
        with pytest.raises(HubUnavailableError):
            read_config(HubModel(id="owner/tiny"), address, patience_seconds=PATIENCE_SECONDS)
        taken = time.monotonic() - began
    assert taken < 1.5 * PATIENCE_SECONDS + 0.2
