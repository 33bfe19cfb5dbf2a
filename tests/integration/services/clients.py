"""Both clients behind one face, so that one test body holds for both."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, cast

from ghosted_client import AsyncClient, Client, Patience
from tests.integration.services.helpers import Server

KINDS = ("blocking", "asyncio")


class Awaited:
    """An `AsyncClient` in an event loop of its own; its methods return what they would be awaited for."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            made = method(*arguments, **named)
            if isinstance(made, AsyncGenerator):
                return self._iterate(made)
            return self._runner.run(cast("Coroutine[Any, Any, Any]", made))

        return call

    def _iterate(self, values: AsyncGenerator[Any, None]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(values)

        try:
            while True:
                try:
                    value = self._runner.run(following())
                except StopAsyncIteration:
                    return
                yield value
        finally:
            self._runner.run(cast("Coroutine[Any, Any, None]", values.aclose()))


@contextmanager
def opened(kind: str, server: Server, patience: Patience | None = None) -> Iterator[Client]:
    """A client of one of the KINDS."""
    if kind == "blocking":
        with Client(server.url, server.key, patience=patience) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        made = AsyncClient(server.url, server.key, patience=patience)
        yield cast("Client", Awaited(made, runner))
        runner.run(made.close())
