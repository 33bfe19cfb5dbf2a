import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ghosted_cli.request import cache_folder
from ghosted_core.testing import tiny_llama
from services.embedded import Stack, remove_stack
from tests.tiny import save_tiny_model, write_text

# A shell has what it runs in the background ignore Ctrl-C, and every process that a test starts inherits
# that: none of them could be interrupted any more.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Tiny models gain nothing from threads, and lose much where cores are shared.
torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded source of random numbers."""
    return torch.Generator().manual_seed(20260515)


@pytest.fixture(scope="session")
def real_cache() -> Path:
    """Where the real model and text are kept: the user's own cache, shared with `make demo`."""
    return cache_folder(None)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 6 layers with tokenizer, chat template and generation config, as a source."""
    return save_tiny_model(tiny_llama(tied=True), tmp_path_factory.mktemp("source") / "tiny")


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 200 documents of made-up sentences."""
    return write_text(tmp_path_factory.mktemp("text") / "corpus.txt")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """PostgreSQL, Redis and S3 on loopback; what one test leaves in them, the next one sees."""
    folder = tmp_path_factory.mktemp("stack") / "data"
    with Stack.start(folder) as running:
        yield running
    remove_stack(folder)
