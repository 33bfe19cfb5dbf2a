"""One piece of logic, two clients: coroutines that a plain call can drive to their end.

Everything in this package that needs input or output is written once, as coroutines over a `Wire`.
Over the wire of `AsyncClient` they wait in an event loop. Over that of `Client` each operation blocks
until it is done, so that the coroutine never waits for anybody and one `send` runs it to its end.
"""

from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

R = TypeVar("R")


def run_now(work: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine that never waits for an event loop.

    Raises:
        RuntimeError: it does wait, so that it belongs to `AsyncClient`.
    """
    try:
        work.send(None)
    except StopIteration as ended:
        result: R = ended.value
        return result
    work.close()
    raise RuntimeError("this coroutine waits for an event loop")


def iterate_now(values: AsyncGenerator[R, None]) -> Iterator[R]:
    """The values of an asynchronous generator that never waits; it is closed with this iterator."""
    try:
        while True:
            try:
                value = run_now(values.__anext__())
            except StopAsyncIteration:
                return
            yield value
    finally:
        run_now(values.aclose())
