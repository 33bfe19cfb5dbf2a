"""Perplexity corpora as the field joins them: their figures compare with published ones.

`data.token_windows` shuffles documents, so that calibration sees all of a file. Published
perplexities are of a text in its own order, joined in a way that is part of its name.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ghosted_core.catalog import Catalog, HubFile
from ghosted_core.data import CHARACTERS_PER_TOKEN, Windows, bos_prefix, check_vocabulary
from ghosted_core.documents import Documents, FetchHub, read_documents, read_jsonl, read_parquet
from ghosted_core.errors import DataError, DataNotFoundError, TooFewTokensError
from ghosted_core.spec import LocalText, PerplexityCorpus, TextReference, UploadText
from ghosted_core.wheels import Log, file_sha256


def _rows(path: Path) -> Iterator[str]:
    """The texts of a .jsonl, .json.gz or .parquet file as they are, empty ones included."""
    return read_parquet(path) if path.suffix == ".parquet" else read_jsonl(path)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield line.strip()


@dataclass(frozen=True)
class Corpus:
    """How a file becomes one text."""

    name: str
    texts: Callable[[Path], Iterator[str]]
    joint: str


CORPORA: Mapping[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        # One row a line of the original, joined as in the scripts of GPTQ (arXiv 2210.17323).
        Corpus("wikitext2", _rows, "\n\n"),
        # One stripped line a sentence.
        Corpus("ptb", _lines, "\n\n"),
        # Documents of a validation shard, GPTQ's "c4-new".
        Corpus("c4", _rows, " "),
    )
}


# Documents of any other text, in the order of its file.
OWN_JOINT = "\n\n"


@dataclass(frozen=True)
class Shelf:
    """Where texts are looked up, and how what is not on this disk gets there."""

    catalog: Catalog
    cache: Path
    log: Log
    fetch_hub: FetchHub

    def documents(self, reference: TextReference) -> Documents:
        """The text that `reference` names, document by document; see `read_documents`."""
        return read_documents(
            reference, catalog=self.catalog, cache=self.cache, log=self.log, fetch_hub=self.fetch_hub
        )

    def file(self, reference: TextReference) -> Path:
        """The file itself of a named corpus.

        Raises:
            DataError: the catalog has it in a form that no named corpus comes in, or not at all.
        """
        if isinstance(reference, LocalText):
            return Path(reference.path).expanduser()
        if isinstance(reference, UploadText):
            return self.catalog.upload(reference.id)
        source = self.catalog.text(reference.alias).source
        if isinstance(source, LocalText):
            return Path(source.path)
        if not isinstance(source, HubFile):
            raise DataError(f"'{reference.alias}' is not a file of rows.", advice="Give the corpus's file.")
        return self.fetch_hub(source).path


@dataclass(frozen=True)
class Cut:
    """How a text becomes windows: `length` tokens each, the first `count` of them (None: all)."""

    length: int
    count: int | None
    vocab_size: int


def read_corpus(
    corpus: PerplexityCorpus, tokenizer: PreTrainedTokenizerBase, cut: Cut, shelf: Shelf
) -> Windows:
    """The windows of a corpus of a spec, in its own order.

    Raises:
        DataError: it is missing, malformed or too short.
        InvalidSpecError: the tokenizer does not fit the model.
    """
    named = CORPORA.get(corpus.name)
    if named is not None:
        return _named_windows(named, shelf.file(corpus.text), tokenizer, cut)
    documents = shelf.documents(corpus.text)
    found = _windows(iter(documents), OWN_JOINT, tokenizer, cut, documents.name)
    origin = {"dataset": documents.name, "fingerprint": documents.fingerprint, **documents.origin}
    return _described(found, {"corpus": corpus.name, "joint": OWN_JOINT, **origin})


def corpus_windows(
    corpus: Corpus,
    path: Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    length: int,
    count: int | None,
    vocab_size: int,
) -> Windows:
    """The first `count` windows of `length` tokens of the corpus in `path`, in its own order.

    Windows do not overlap. Each begins with BOS if the tokenizer itself would begin a text with it.
    Only as much text is tokenised as is needed.

    Raises:
        DataNotFoundError: there is no such file.
        DataError: it is not UTF-8, or a row lacks its text.
        TooFewTokensError: the text ends before.
        InvalidSpecError: the tokenizer does not fit the model.
    """
    return _named_windows(corpus, path, tokenizer, Cut(length, count, vocab_size))


def _named_windows(corpus: Corpus, path: Path, tokenizer: PreTrainedTokenizerBase, cut: Cut) -> Windows:
    if not path.is_file():
        raise DataNotFoundError(f"There is no file {path}.")
    try:
        found = _windows(corpus.texts(path), corpus.joint, tokenizer, cut, path.name)
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not a file of corpus '{corpus.name}'.") from error
    known = {"corpus": corpus.name, "dataset": corpus.name, "joint": corpus.joint}
    return _described(found, {**known, "fingerprint": file_sha256(path)})


def _windows(
    texts: Iterator[str], joint: str, tokenizer: PreTrainedTokenizerBase, cut: Cut, name: str
) -> Windows:
    prefix = bos_prefix(tokenizer)
    row = cut.length - len(prefix)
    wanted = math.inf if cut.count is None else cut.count * row
    tokens = _tokens(texts, joint, tokenizer, wanted)
    count = len(tokens) // row if cut.count is None else cut.count
    needed = max(count, 1) * row
    if len(tokens) < needed:
        raise TooFewTokensError(f"{name} has {len(tokens)} tokens; {needed} are needed.")
    check_vocabulary(max(tokens[:needed]), cut.vocab_size)
    rows = torch.tensor(tokens[:needed], dtype=torch.int64).view(count, row)
    windows = torch.cat([torch.tensor([prefix], dtype=torch.int64).expand(count, -1), rows], dim=1)
    return Windows(windows, {"bos": "each window begins with BOS" if prefix else "none"})


def _tokens(texts: Iterator[str], joint: str, tokenizer: PreTrainedTokenizerBase, wanted: float) -> list[int]:
    """The first `wanted` tokens of the text and some more, or all if there are fewer."""
    kept: list[str] = []
    while True:
        # A text whose tokens are longer than usual takes another round.
        more = _some(texts, joint, wanted * CHARACTERS_PER_TOKEN)
        kept += more
        found = tokenizer(joint.join(kept), add_special_tokens=False, verbose=False)["input_ids"]
        if len(found) >= wanted or not more:
            return list(found)


def _some(texts: Iterator[str], joint: str, characters: float) -> list[str]:
    """The next of `texts`, `characters` long together or a little longer."""
    kept: list[str] = []
    total = 0
    for text in texts:
        kept.append(text)
        total += len(text) + len(joint)
        if total >= characters:
            break
    return kept


def _described(found: Windows, known: dict[str, Any]) -> Windows:
    count, length = found.tokens.shape
    size = {"windows": count, "length": length}
    return Windows(found.tokens, {"order": "file", "part": "all", **known, **size, **found.description})
