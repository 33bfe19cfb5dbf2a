"""A signal to stop that Python drops is not lost."""

import signal

import pytest

from ghosted_cli.exits import exit_codes
from ghosted_cli.up import STOPPING, interrupts_kept


class Interrupted:
    """Gets a signal while it goes away, where an exception goes nowhere."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", STOPPING)
def test_one_that_comes_in_a_destructor_is_seen(number: signal.Signals) -> None:
    """The exception is gone, the event is set."""
    handlers = {one: signal.getsignal(one) for one in STOPPING}
    try:
        with exit_codes(as_json=False), interrupts_kept() as interrupted:
            Interrupted(number)
            assert interrupted.is_set()
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)


def test_any_other_raises_at_once_and_all_is_as_before() -> None:
    """As without it."""
    before = signal.getsignal(signal.SIGINT)
    with interrupts_kept(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
