"""The token windows of a job: to score and fit, to test the fit, to evaluate."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ghosted_core.catalog import Catalog, HubFile
from ghosted_core.data import Windows, read_documents, token_windows
from ghosted_core.documents import Fetched, FetchHub
from ghosted_core.spec import JobSpec


@dataclass(frozen=True)
class Texts:
    """Three sets of windows; no document of `evaluation` is in the others."""

    calibration: Windows
    held_out: Windows
    evaluation: Windows | None


def read_texts(
    spec: JobSpec,
    tokenizer: PreTrainedTokenizerBase,
    *,
    vocab_size: int,
    catalog: Catalog,
    cache: Path,
    log: Callable[[str], None],
) -> Texts:
    """The windows that `spec` asks for.

    Calibration and evaluation documents of one data set are kept apart by a fixed split; an
    evaluation set of its own is used whole.

    Raises:
        DataError: a set is missing, malformed or too short.
        InvalidSpecError: the tokenizer does not fit the model.
    """
    calibration = spec.calibration
    read = partial(read_documents, catalog=catalog, cache=cache, log=log, fetch_hub=_hub(cache, log))
    documents = read(calibration.dataset)
    windows = token_windows(
        documents,
        tokenizer,
        length=calibration.sequence_length,
        count=calibration.sequences + calibration.held_out_sequences,
        seed=calibration.seed,
        part="calibration",
        vocab_size=vocab_size,
    )
    evaluation = None
    if spec.evaluation is not None:
        own = spec.evaluation.dataset
        evaluation = token_windows(
            documents if own is None else read(own),
            tokenizer,
            length=spec.evaluation.sequence_length or calibration.sequence_length,
            count=spec.evaluation.windows,
            seed=calibration.seed,
            part="evaluation" if own in {None, calibration.dataset} else "all",
            vocab_size=vocab_size,
        )
    fitted, held_out = windows.split(calibration.sequences)
    return Texts(fitted, held_out, evaluation)


def _hub(cache: Path, log: Callable[[str], None]) -> FetchHub:
    def fetch(source: HubFile) -> Fetched:
        # Here, because most jobs have no need of the client and its import.
        from ghosted_core.checkpoint.hub import HubClient
        from ghosted_core.checkpoint.hub_text import fetch_text

        # Without a token: what a catalog names is public, and a user's token is for the user's model.
        return fetch_text(source, HubClient(cache=cache / "hub", token=None), log)

    return fetch
