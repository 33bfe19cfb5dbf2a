import asyncio
from collections.abc import AsyncGenerator

import pytest

from ghosted_client.driving import iterate_now, run_now


async def double(value: int) -> int:
    return 2 * value


def test_a_coroutine_that_never_waits_is_a_call() -> None:
    """Its result and its errors come out as they are."""

    async def fails() -> None:
        await double(1)
        raise KeyError("x")

    assert run_now(double(4)) == 8
    with pytest.raises(KeyError):
        run_now(fails())


def test_a_coroutine_that_waits_is_refused() -> None:
    """It would hang for ever; it is closed instead."""
    with pytest.raises(RuntimeError, match="event loop"):
        run_now(asyncio.sleep(1))


def test_an_iterator_that_is_left_closes_what_it_iterates() -> None:
    """Connections of a loop that ends early are given back at once."""
    closed: list[bool] = []

    async def values() -> AsyncGenerator[int, None]:
        try:
            yield await double(1)
            yield await double(2)
        finally:
            closed.append(True)

    assert list(iterate_now(values())) == [2, 4]
    left = iterate_now(values())
    assert next(left) == 2
    left.close()  # type: ignore[attr-defined]
    assert closed == [True, True]
