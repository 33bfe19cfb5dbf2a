"""A TCP proxy before the object store that fails as told, and counts the bytes that it is sent.

It takes one request a connection, so that a fault hits exactly the request that it is meant for.
"""

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qs, urlsplit

BLOCK = 1 << 16
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"


@dataclass(frozen=True)
class Asked:
    """What is known of a request before its body."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]

    @property
    def part(self) -> int | None:
        """The number of the part that is sent, if it is one."""
        return int(self.query["partNumber"]) if self.method == "PUT" and "partNumber" in self.query else None

    @property
    def first_byte(self) -> int | None:
        """Where the range that is asked for begins, if one is."""
        wanted = self.headers.get("range")
        return None if wanted is None else int(wanted.removeprefix("bytes=").partition("-")[0])

    @property
    def kind(self) -> str:
        """Which of S3's operations it is."""
        if self.method == "PUT":
            return "part" if "partNumber" in self.query else "put"
        if self.method == "POST":
            return (
                "begin" if "uploads" in self.query else "complete" if "uploadId" in self.query else "delete"
            )
        return {"DELETE": "abort", "HEAD": "head"}.get(
            self.method, "get" if "range" in self.headers else "list"
        )


@dataclass(frozen=True)
class Refuse:
    """Answer `status` at once, and read no body."""

    status: int = 503
    body: bytes = SLOW_DOWN


@dataclass(frozen=True)
class Cut:
    """Reset the connection after `after` bytes of the request's body; the store sees as much."""

    after: int = 0


@dataclass(frozen=True)
class CutAnswer:
    """Hand the request on, and reset the connection after `after` bytes of the answer."""

    after: int = 0


@dataclass(frozen=True)
class Delay:
    """Hand the request on, and hold the answer back for a while."""

    seconds: float


@dataclass(frozen=True)
class Hang:
    """Read nothing and say nothing, until the proxy is told to go on; then reset."""


Fault = Refuse | Cut | CutAnswer | Delay | Hang
Plan = Callable[[Asked], Fault | None]


def harmless(_: Asked) -> None:
    """No fault."""


@dataclass
class Proxy:
    """Between a client and the store at `upstream`. As a context it listens while the body runs."""

    upstream: tuple[str, int]
    plan: Plan = harmless
    sent: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    hanging: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        # Only this wakes a thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def sent_of_part(self, number: int) -> int:
        """How many bytes of a part's body have come in, over all tries."""
        return self.sent["part", number]

    def count(self, kind: str) -> int:
        """How many requests of a kind have come in."""
        return sum(asked.kind == kind for asked in self.asked)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                self._exchange(client)
            except OSError:
                reset(client)

    def _exchange(self, client: socket.socket) -> None:
        head, early = read_head(client)
        if not head:
            return None
        asked = parse(head)
        with self._lock:
            self.asked.append(asked)
            fault = self.plan(asked)
        if isinstance(fault, Hang):
            self.hanging.set()
            self.go_on.wait()
            return reset(client)
        if isinstance(fault, Refuse):
            return self._refuse(client, asked, fault, early)
        return self._hand_on(client, head, early, asked, fault)

    def _refuse(self, client: socket.socket, asked: Asked, fault: Refuse, early: bytes) -> None:
        if "expect" not in asked.headers:
            self._take(client, asked, early, int(asked.headers.get("content-length", 0)), None)
        lines = (
            f"HTTP/1.1 {fault.status} No\r\nContent-Length: {len(fault.body)}\r\nConnection: close\r\n\r\n"
        )
        client.sendall(lines.encode() + fault.body)

    def _hand_on(
        self, client: socket.socket, head: bytes, early: bytes, asked: Asked, fault: Fault | None
    ) -> None:
        if "expect" in asked.headers:
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        with socket.create_connection(self.upstream) as server:
            server.sendall(one_request(head))
            length = int(asked.headers.get("content-length", 0))
            if isinstance(fault, Cut):
                self._take(client, asked, early, min(length, fault.after), server)
                return reset(client)
            self._take(client, asked, early, length, server)
            if isinstance(fault, Delay):
                time.sleep(fault.seconds)
            return answer(server, client, fault.after if isinstance(fault, CutAnswer) else None)

    def _take(
        self, client: socket.socket, asked: Asked, early: bytes, length: int, server: socket.socket | None
    ) -> None:
        """Count `length` bytes of the body, of which `early` came with the head, and hand them on."""
        left, block = length, early[:length]
        while True:
            with self._lock:
                self.sent[asked.kind, asked.part] += len(block)
            if server is not None:
                server.sendall(block)
            left -= len(block)
            if not left:
                return
            block = client.recv(min(BLOCK, left))
            if not block:
                raise ConnectionResetError


def before(endpoint: str | None) -> Proxy:
    """A proxy before the store at `endpoint`."""
    url = urlsplit(endpoint or "")
    assert url.hostname is not None
    assert url.port is not None
    return Proxy((url.hostname, url.port))


def answer(server: socket.socket, client: socket.socket, cut_after: int | None) -> None:
    """All that `server` says goes to `client`, or its first `cut_after` bytes and a reset."""
    left = cut_after
    while block := server.recv(BLOCK):
        piece = block if left is None else block[:left]
        client.sendall(piece)
        if left is not None:
            left -= len(piece)
    if cut_after is not None:
        reset(client)


def reset(client: socket.socket) -> None:
    """The connection ends as if the machine on this side had died."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The request's head, and what came of its body along with it; nothing if there is no request."""
    taken = b""
    while b"\r\n\r\n" not in taken:
        block = client.recv(BLOCK)
        if not block:
            return b"", b""
        taken += block
    head, _, early = taken.partition(b"\r\n\r\n")
    return head, early


def parse(head: bytes) -> Asked:
    """What a request asks for."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    url = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    pairs = (line.partition(":") for line in lines)
    return Asked(method, url.path, query, {name.lower(): value.strip() for name, _, value in pairs})


def one_request(head: bytes) -> bytes:
    """The head for a server that is to close the connection afterwards, and to be sent the body unasked."""
    lines = [
        line for line in head.split(b"\r\n") if not line.lower().startswith((b"expect:", b"connection:"))
    ]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])
