"""Libraries that print of their own accord, silenced for as long as a call takes."""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Inside, the Hub client draws no bars and logs errors only; afterwards all is as before."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    with _errors_only("huggingface_hub"):
        if are_progress_bars_disabled():
            yield
            return
        disable_progress_bars()
        try:
            yield
        finally:
            enable_progress_bars()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Inside, transformers draws no bars and logs errors only; afterwards all is as before.

    Failures reach us as exceptions and in the loading report; its log lines say nothing more.
    """
    from transformers.utils import logging as library

    with _errors_only("transformers"), _no_gguf_bar():
        if not library.is_progress_bar_enabled():
            yield
            return
        library.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            library.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def _errors_only(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _no_gguf_bar() -> Iterator[None]:
    # The GGUF reader takes its bar from tqdm itself, which no setting of transformers reaches.
    from transformers import modeling_gguf_pytorch_utils as reader

    bar = getattr(reader, "tqdm", None)
    if bar is None:
        yield
        return
    vars(reader)["tqdm"] = functools.partial(bar, disable=True)
    try:
        yield
    finally:
        vars(reader)["tqdm"] = bar
