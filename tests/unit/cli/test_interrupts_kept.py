"""A Ctrl-C that Python drops is not lost."""

import os
import signal

import pytest

from ghosted_cli.up import interrupts_kept


class Interrupted:
    """Is interrupted while it goes away, where an exception goes nowhere."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_comes_in_a_destructor_is_seen() -> None:
    """The exception is gone, the event is set; afterwards all is as before."""
    before = signal.getsignal(signal.SIGINT)
    with interrupts_kept() as interrupted:
        Interrupted()
        assert interrupted.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def test_any_other_raises_at_once() -> None:
    """As without it."""
    with interrupts_kept(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
