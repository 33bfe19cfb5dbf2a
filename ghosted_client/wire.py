"""Where bytes leave and arrive: the only part of the client that differs between blocking and not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx2

from ghosted_client.driving import run_now
from ghosted_client.errors import ConnectionFailedError

PIECE_BYTES = 1 << 20
CONNECT_SECONDS = 10.0

R = TypeVar("R")
Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Outgoing:
    """A request. `path` is below the service's address, or a whole URL."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    # Tokens travel in headers: none is shown with the request.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content: bytes | None = field(default=None, repr=False)
    # How long an answer may take to begin, and between its pieces.
    seconds: float | None = None


@dataclass(frozen=True)
class Incoming:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Flow:
    """An answer whose bytes are still to come."""

    status: int
    headers: Mapping[str, str]
    pieces: Callable[[], AsyncIterator[bytes]]
    rest: Callable[[], Awaitable[bytes]]


class Wire(Protocol):
    """Connections to one place, and the ways to wait that go with them."""

    async def send(self, request: Outgoing) -> Incoming:
        """The answer. Raises ConnectionFailedError if none comes."""

    def stream(self, request: Outgoing) -> AbstractAsyncContextManager[Flow]:
        """The answer, piece by piece. Raises ConnectionFailedError where it breaks off."""

    async def put(self, url: str, file: Path, on_bytes: Callable[[int], None]) -> Incoming:
        """The answer to a PUT of the file's bytes."""

    async def sleep(self, seconds: float) -> None:
        """So many seconds have passed."""

    async def aside(self, work: Callable[[], R]) -> R:
        """The result of work that blocks for a while."""

    async def together(self, works: Sequence[Work], workers: int, stop: threading.Event) -> None:
        """All works are done, some at a time. The first error sets `stop`, ends the others, is raised."""

    def elsewhere(self) -> "Wire":
        """Connections to any place, without the key."""

    async def close(self) -> None:
        """No connection is open."""


@dataclass(frozen=True)
class Address:
    """Where a wire leads, and what it always sends."""

    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    seconds: float = 30.0

    def timeout(self, seconds: float | None) -> httpx2.Timeout:
        """The time-out of one request."""
        longest = self.seconds if seconds is None else seconds
        return httpx2.Timeout(longest, connect=min(CONNECT_SECONDS, longest))

    def options(self, request: Outgoing) -> dict[str, Any]:
        """A request as the HTTP library takes it."""
        return {
            "method": request.method,
            "url": request.path,
            "params": request.params or None,
            "headers": dict(request.headers),
            "content": request.content,
            "timeout": self.timeout(request.seconds),
        }


@contextmanager
def faults_named(url: str) -> Iterator[None]:
    """Whatever keeps an answer from coming is a ConnectionFailedError."""
    try:
        yield
    except (httpx2.RequestError, httpx2.InvalidURL) as error:
        # Without the address of a file: its link is as good as a key.
        where = f" from {url}" if url else ""
        raise ConnectionFailedError(f"no answer{where} ({type(error).__name__})") from error


def _put_headers(file: Path) -> dict[str, str]:
    # A stated length, because the object store takes no chunked body.
    return {"Content-Length": str(file.stat().st_size)}


def _pieces_of(file: Path, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(PIECE_BYTES):
            yield piece
            on_bytes(len(piece))


class BlockingWire:
    """Each operation has ended when its coroutine is first asked."""

    def __init__(self, address: Address, sleep: Callable[[float], None]) -> None:
        """No connection yet.

        Raises:
            ConnectionFailedError: the address is none.
        """
        self._address = address
        self._sleep = sleep
        with faults_named(address.url):
            self._http = httpx2.Client(base_url=address.url, headers=dict(address.headers))

    async def send(self, request: Outgoing) -> Incoming:
        """See `Wire`."""
        with faults_named(self._address.url):
            answer = self._http.request(**self._address.options(request))
        return Incoming(answer.status_code, answer.headers, answer.content)

    @asynccontextmanager
    async def stream(self, request: Outgoing) -> AsyncIterator[Flow]:
        """See `Wire`."""
        with (
            faults_named(self._address.url),
            self._http.stream(**self._address.options(request)) as answer,
        ):

            async def pieces() -> AsyncIterator[bytes]:
                with faults_named(self._address.url):
                    for piece in answer.iter_bytes(None):
                        yield piece

            async def rest() -> bytes:
                return answer.read()

            yield Flow(answer.status_code, answer.headers, pieces, rest)

    async def put(self, url: str, file: Path, on_bytes: Callable[[int], None]) -> Incoming:
        """See `Wire`."""
        with faults_named(self._address.url):
            content = _pieces_of(file, on_bytes)
            answer = self._http.put(
                url, content=content, headers=_put_headers(file), timeout=self._address.timeout(None)
            )
        return Incoming(answer.status_code, answer.headers, answer.content)

    async def sleep(self, seconds: float) -> None:
        """See `Wire`."""
        self._sleep(seconds)

    async def aside(self, work: Callable[[], R]) -> R:
        """See `Wire`."""
        return work()

    async def together(self, works: Sequence[Work], workers: int, stop: threading.Event) -> None:
        """See `Wire`."""
        with ThreadPoolExecutor(workers) as pool:
            running = [pool.submit(lambda work=work: run_now(work())) for work in works]  # type: ignore[misc]
            try:
                for future in as_completed(running):
                    future.result()
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def elsewhere(self) -> "BlockingWire":
        """See `Wire`."""
        return BlockingWire(Address(seconds=self._address.seconds), self._sleep)

    async def close(self) -> None:
        """See `Wire`."""
        self._http.close()


class WaitingWire:
    """Each operation waits in the running event loop."""

    def __init__(self, address: Address) -> None:
        """No connection yet.

        Raises:
            ConnectionFailedError: the address is none.
        """
        self._address = address
        with faults_named(address.url):
            self._http = httpx2.AsyncClient(base_url=address.url, headers=dict(address.headers))

    async def send(self, request: Outgoing) -> Incoming:
        """See `Wire`."""
        with faults_named(self._address.url):
            answer = await self._http.request(**self._address.options(request))
        return Incoming(answer.status_code, answer.headers, answer.content)

    @asynccontextmanager
    async def stream(self, request: Outgoing) -> AsyncIterator[Flow]:
        """See `Wire`."""
        with faults_named(self._address.url):
            async with self._http.stream(**self._address.options(request)) as answer:

                async def pieces() -> AsyncIterator[bytes]:
                    with faults_named(self._address.url):
                        async for piece in answer.aiter_bytes(None):
                            yield piece

                yield Flow(answer.status_code, answer.headers, pieces, answer.aread)

    async def put(self, url: str, file: Path, on_bytes: Callable[[int], None]) -> Incoming:
        """See `Wire`."""

        async def content() -> AsyncIterator[bytes]:
            pieces = _pieces_of(file, on_bytes)
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece

        with faults_named(self._address.url):
            answer = await self._http.put(
                url, content=content(), headers=_put_headers(file), timeout=self._address.timeout(None)
            )
        return Incoming(answer.status_code, answer.headers, answer.content)

    async def sleep(self, seconds: float) -> None:
        """See `Wire`."""
        await asyncio.sleep(seconds)

    async def aside(self, work: Callable[[], R]) -> R:
        """See `Wire`."""
        return await asyncio.to_thread(work)

    async def together(self, works: Sequence[Work], workers: int, stop: threading.Event) -> None:
        """See `Wire`."""
        places = asyncio.Semaphore(workers)

        async def one(work: Work) -> None:
            async with places:
                await work()

        running = [asyncio.ensure_future(one(work)) for work in works]
        try:
            for future in asyncio.as_completed(running):
                await future
        except BaseException:
            stop.set()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise

    def elsewhere(self) -> "WaitingWire":
        """See `Wire`."""
        return WaitingWire(Address(seconds=self._address.seconds))

    async def close(self) -> None:
        """See `Wire`."""
        await self._http.aclose()
