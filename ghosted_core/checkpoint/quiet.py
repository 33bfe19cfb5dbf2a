"""Libraries that print of their own accord, silenced for as long as a call takes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = ("transformers", "huggingface_hub")


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Inside, neither progress bars nor log lines of the model libraries appear; afterwards all is as before.

    Only errors still pass. Failures reach us as exceptions; the lines say nothing more.
    """
    with _quiet_logs(), _quiet_bars():
        yield


@contextmanager
def _quiet_logs() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _quiet_bars() -> Iterator[None]:
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
