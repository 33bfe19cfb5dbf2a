"""Calibration text as windows of tokens."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ghosted_core.batching import BATCH_TOKENS
from ghosted_core.documents import Documents, Part, document_digest, in_part, read_documents
from ghosted_core.errors import InvalidSpecError, TooFewTokensError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

__all__ = ["Documents", "Part", "Windows", "batches", "read_documents", "token_windows"]

JOINT = "\n\n"
# Documents held at once have at most this many characters per token still needed.
CHARACTERS_PER_TOKEN = 8
CHUNK_CHARACTERS = 100_000


@dataclass(frozen=True)
class Windows:
    """Windows of tokens; `tokens` is int64 of shape (count, length), on the CPU.

    `description` says how they came about, as plain JSON values: two equal descriptions with one
    tokenizer mean equal tokens.
    """

    tokens: "torch.Tensor"
    description: dict[str, Any]

    def split(self, count: int) -> tuple["Windows", "Windows"]:
        """The first `count` windows and the rest."""
        return (
            Windows(self.tokens[:count], {**self.description, "windows": count}),
            Windows(self.tokens[count:], {**self.description, "windows": len(self.tokens) - count}),
        )

    def head(self, count: int | None, length: int | None) -> "Windows":
        """The first `length` tokens of the first `count` windows, or as much of that as there is."""
        tokens = self.tokens[:count, :length]
        size = {"windows": tokens.shape[0], "length": tokens.shape[1]}
        return Windows(tokens, {**self.description, **size})


def batches(windows: Windows) -> "Iterator[torch.Tensor]":
    """The windows in groups of about `BATCH_TOKENS` tokens."""
    count, length = windows.tokens.shape
    size = max(1, BATCH_TOKENS // length)
    for start in range(0, count, size):
        yield windows.tokens[start : start + size]


def token_windows(
    documents: Documents,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    length: int,
    count: int,
    seed: int,
    part: Part,
    vocab_size: int,
    skip: int = 0,
) -> Windows:
    """`count` windows of `length` tokens from the documents of `part`, shuffled by `seed`.

    The first `skip` documents of that order are left out: whoever took them before has them alone.

    The documents are joined with an empty line and tokenised without special tokens, and only as
    many as are needed; what is left over at the end is dropped. If the tokenizer itself would begin
    a text with BOS, each window begins with it. The order depends on the seed and on the texts, not
    on their order in the file. Memory grows with count * length, not with the file, but for about
    half a kilobyte a document.

    Raises:
        TooFewTokensError: the text ends before; the message says how many tokens there are.
        InvalidSpecError: a token id that a model of `vocab_size` rows has no embedding for.
        DataError: see `read_documents`.
    """
    import torch

    prefix = bos_prefix(tokenizer)
    row = length - len(prefix)
    if row < 1 or count < 1:
        raise InvalidSpecError(f"{count} windows of {length} tokens hold no text.")
    stream = _TokenStream(documents, tokenizer, order=_shuffled(documents, part, seed)[skip:])
    tokens = stream.take(count * row)
    if len(tokens) < count * row:
        raise TooFewTokensError(
            f"{documents.name} ({part} documents{' that are left' * (skip > 0)}) has {len(tokens)} tokens; "
            f"{count} windows of {length} need {count * row}."
        )
    rows = torch.tensor(tokens, dtype=torch.int64).view(count, row)
    windows = torch.cat([torch.tensor([prefix], dtype=torch.int64).expand(count, -1), rows], dim=1)
    check_vocabulary(int(windows.max()), vocab_size)
    sampling: dict[str, Any] = {"part": part, "windows": count, "length": length, "seed": seed}
    if skip:
        sampling["skipped_documents"] = skip
    return Windows(tokens=windows, description={**sampling, **_origin(documents, stream, prefix)})


def _origin(documents: Documents, stream: "_TokenStream", prefix: list[int]) -> dict[str, Any]:
    return {
        "dataset": documents.name,
        "fingerprint": documents.fingerprint,
        **documents.origin,
        "documents": stream.documents_used,
        "joint": JOINT,
        "bos": "each window begins with BOS" if prefix else "none",
    }


def bos_prefix(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """[BOS] if the tokenizer begins every text with it of its own accord, else []."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return []
    with_special, without = _encode(tokenizer, "a", special=True), _encode(tokenizer, "a", special=False)
    return [int(bos)] if with_special[:1] == [bos] and without[:1] != [bos] else []


def _encode(tokenizer: "PreTrainedTokenizerBase", text: str, *, special: bool) -> list[int]:
    # verbose=False: the warning about texts longer than the model's limit is not meant for us,
    # who cut them.
    encoded = tokenizer(
        text,
        add_special_tokens=special,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    return list(encoded["input_ids"])


def check_vocabulary(largest: int, vocab_size: int) -> None:
    """Return if a model of `vocab_size` embeddings knows the token `largest`.

    Raises:
        InvalidSpecError: it does not.
    """
    if largest >= vocab_size:
        raise InvalidSpecError(
            f"The tokenizer makes token {largest}, but the model embeds only {vocab_size} tokens.",
            advice="Use the tokenizer that belongs to the model.",
        )


@dataclass(frozen=True, order=True)
class _Ranked:
    """A document's place in the shuffle: ascending `rank`; `digest` finds it again in the file."""

    rank: bytes
    digest: bytes
    characters: int


def _shuffled(documents: Documents, part: Part, seed: int) -> list[_Ranked]:
    # Sorting by a hash of seed and text shuffles without holding the texts.
    salt = f"{seed}:".encode()
    ranked = []
    for text in documents:
        digest = document_digest(text)
        if in_part(digest, part):
            ranked.append(_Ranked(hashlib.sha256(salt + digest).digest()[:16], digest, len(text)))
    ranked.sort()
    return ranked


class _TokenStream:
    """Tokens of the documents in a given order, read from the file in as few passes as needed."""

    def __init__(
        self, documents: Documents, tokenizer: "PreTrainedTokenizerBase", *, order: list[_Ranked]
    ) -> None:
        self._documents = documents
        self._tokenizer = tokenizer
        self._pending = order
        self.documents_used = 0

    def take(self, needed: int) -> list[int]:
        """The first `needed` tokens, or all if there are fewer."""
        tokens: list[int] = []
        while len(tokens) < needed and self._pending:
            batch = self._next_batch((needed - len(tokens)) * CHARACTERS_PER_TOKEN)
            for chunk in _chunks(self._texts(batch)):
                if len(tokens) >= needed:
                    break
                head = JOINT if self.documents_used else ""
                tokens.extend(_encode(self._tokenizer, head + JOINT.join(chunk), special=False))
                self.documents_used += len(chunk)
        return tokens[:needed]

    def _next_batch(self, characters: int) -> list[_Ranked]:
        sizes = itertools.accumulate(item.characters for item in self._pending)
        size = 1 + sum(1 for _ in itertools.takewhile(lambda total: total < characters, sizes))
        batch, self._pending = self._pending[:size], self._pending[size:]
        return batch

    def _texts(self, batch: list[_Ranked]) -> list[str]:
        wanted = {item.digest: position for position, item in enumerate(batch)}
        texts = [""] * len(batch)
        for text in self._documents:
            position = wanted.get(document_digest(text))
            if position is not None:
                texts[position] = text
        return texts


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        characters += len(text)
        if characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
