"""Perplexity corpora as the field joins them: their figures compare with published ones.

`data.token_windows` shuffles documents, so that calibration sees all of a file. Published
perplexities are of a text in its own order, joined in a way that is part of its name.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ghosted_core.data import CHARACTERS_PER_TOKEN, Windows, bos_prefix, check_vocabulary
from ghosted_core.documents import TEXT_KEY
from ghosted_core.errors import DataError, DataNotFoundError, TooFewTokensError
from ghosted_core.wheels import file_sha256


def _rows(path: Path) -> Iterator[str]:
    """The texts of a .jsonl file as they are, empty ones included."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get(TEXT_KEY), str):
                raise DataError(f"{path.name}, line {number}: there is no '{TEXT_KEY}'.")
            yield row[TEXT_KEY]


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


def corpus_windows(
    corpus: Corpus,
    path: Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    length: int,
    count: int,
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
    if not path.is_file():
        raise DataNotFoundError(f"There is no file {path}.")
    prefix = bos_prefix(tokenizer)
    row = length - len(prefix)
    text = _joined(corpus, path, count * row * CHARACTERS_PER_TOKEN)
    tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][: count * row]
    if len(tokens) < count * row:
        raise TooFewTokensError(f"{path.name} has {len(tokens)} tokens; {count * row} are needed.")
    check_vocabulary(max(tokens), vocab_size)
    rows = torch.tensor(tokens, dtype=torch.int64).view(count, row)
    windows = torch.cat([torch.tensor([prefix], dtype=torch.int64).expand(count, -1), rows], dim=1)
    return Windows(windows, _description(corpus, path, count, length, prefix))


def _joined(corpus: Corpus, path: Path, characters: int) -> str:
    """The beginning of the text, `characters` long or a little longer."""
    kept: list[str] = []
    total = 0
    try:
        for text in corpus.texts(path):
            kept.append(text)
            total += len(text) + len(corpus.joint)
            if total >= characters:
                break
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path.name} is not a file of corpus '{corpus.name}'.") from error
    return corpus.joint.join(kept)


def _description(corpus: Corpus, path: Path, count: int, length: int, prefix: list[int]) -> dict[str, Any]:
    return {
        "corpus": corpus.name,
        "fingerprint": file_sha256(path),
        "order": "file",
        "joint": corpus.joint,
        "windows": count,
        "length": length,
        "bos": "each window begins with BOS" if prefix else "none",
    }
