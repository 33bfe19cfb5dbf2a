"""The token windows of a job: to score and fit, to test the fit, to evaluate."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ghosted_core.catalog import Catalog, HubFile
from ghosted_core.corpora import Cut, Shelf, read_corpus
from ghosted_core.data import Windows, token_windows
from ghosted_core.documents import Fetched, FetchHub
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import JobSpec, PerplexityCorpus


@dataclass(frozen=True)
class Texts:
    """Sets of windows; no document of `evaluation` is in the others.

    `corpora` are further texts to evaluate on, by name. `training` and `training_held_out` are for what
    trains: no document of theirs is in the other sets.
    """

    calibration: Windows
    held_out: Windows
    evaluation: Windows | None
    corpora: Mapping[str, Windows] = field(default_factory=dict)
    training: Windows | None = None
    training_held_out: Windows | None = None


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
    calibration, evaluation = spec.calibration, spec.evaluation
    shelf = Shelf(catalog, cache, log, hub(cache, log))
    documents = shelf.documents(calibration.dataset)
    windows = token_windows(
        documents,
        tokenizer,
        length=calibration.sequence_length,
        count=calibration.sequences + calibration.held_out_sequences,
        seed=calibration.seed,
        part="calibration",
        vocab_size=vocab_size,
    )
    fitted, held_out = windows.split(calibration.sequences)
    training, unseen = _training(spec, tokenizer, vocab_size, shelf, windows)
    learned_from = {_fingerprint(one) for one in (windows, training) if one is not None}
    found = Texts(fitted, held_out, None, training=training, training_held_out=unseen)
    if evaluation is None:
        return found
    length = evaluation.sequence_length or calibration.sequence_length
    own = None
    if evaluation.windows:
        unseen_text = documents if evaluation.dataset is None else shelf.documents(evaluation.dataset)
        own = token_windows(
            unseen_text,
            tokenizer,
            length=length,
            count=evaluation.windows,
            seed=calibration.seed,
            # Documents of a set that is fitted or trained on are divided between the two; by what is in
            # the file, for one file may have several names.
            part="evaluation" if unseen_text.fingerprint in learned_from else "all",
            vocab_size=vocab_size,
        )
    usual = Cut(length, evaluation.usual_windows, vocab_size)
    corpora = read_corpora(evaluation.corpora, tokenizer, usual, shelf)
    _check_unseen(corpora, windows, training, log)
    return replace(found, evaluation=own, corpora=corpora)


def _training(
    spec: JobSpec,
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
    shelf: Shelf,
    calibrated: Windows,
) -> tuple[Windows, Windows] | tuple[None, None]:
    """The windows to train on and those to test on, of documents that calibration has not taken."""
    finetune = spec.finetune
    if finetune is None:
        return None, None
    documents = shelf.documents(spec.finetune_text)
    is_shared = documents.fingerprint == _fingerprint(calibrated)
    windows = token_windows(
        documents,
        tokenizer,
        length=finetune.sequence_length or spec.calibration.sequence_length,
        count=finetune.sequences + finetune.held_out_sequences,
        seed=spec.calibration.seed,
        part="calibration",
        vocab_size=vocab_size,
        skip=int(calibrated.description["documents"]) if is_shared else 0,
    )
    return windows.split(finetune.sequences)


def _fingerprint(windows: Windows) -> str:
    """Of the file that the windows are of."""
    return str(windows.description["fingerprint"])


def _check_unseen(
    corpora: Mapping[str, Windows], calibrated: Windows, trained: Windows | None, log: Callable[[str], None]
) -> None:
    """No corpus is trained on; one that is calibrated on is told of: published figures are of all of it.

    Raises:
        InvalidSpecError: one is trained on.
    """
    for name, windows in corpora.items():
        if trained is not None and _fingerprint(windows) == _fingerprint(trained):
            raise InvalidSpecError(
                f"'finetune' would train on the text of the corpus '{name}'.",
                advice="Train on another text, or leave the corpus out.",
                field="finetune.dataset",
            )
        if _fingerprint(windows) == _fingerprint(calibrated):
            log(f"The corpus '{name}' is also what calibration reads: its figures flatter the result.")


def read_corpora(
    corpora: Iterable[PerplexityCorpus], tokenizer: PreTrainedTokenizerBase, usual: Cut, shelf: Shelf
) -> dict[str, Windows]:
    """The windows of each corpus by its name, cut as `usual` where it does not say.

    Raises:
        DataError: one is missing, malformed or too short.
        InvalidSpecError: the tokenizer does not fit the model.
    """
    return {corpus.name: read_corpus(corpus, tokenizer, _cut(corpus, usual), shelf) for corpus in corpora}


def _cut(corpus: PerplexityCorpus, usual: Cut) -> Cut:
    count = usual.count if corpus.windows is None else corpus.windows
    return replace(
        usual, length=corpus.sequence_length or usual.length, count=None if count == "all" else count
    )


def hub(cache: Path, log: Callable[[str], None]) -> FetchHub:
    """Brings files of data sets on the Hub into `cache`."""

    def fetch(source: HubFile) -> Fetched:
        # Here, because most jobs have no need of the client and its import.
        from ghosted_core.checkpoint.hub import HubClient
        from ghosted_core.checkpoint.hub_text import fetch_text

        # Without a token: what a catalog names is public, and a user's token is for the user's model.
        return fetch_text(source, HubClient(cache=cache / "hub", token=None), log)

    return fetch
