import gzip
import json
import random
import string
import traceback
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from transformers import PreTrainedTokenizerFast

from ghosted_core.catalog import Catalog, builtin_catalog
from ghosted_core.data import Part, Windows, token_windows
from ghosted_core.documents import Documents, _read_arrow, document_digest, in_part, read_documents
from ghosted_core.errors import DataError, DataNotFoundError, InvalidSpecError, TooFewTokensError
from ghosted_core.spec import CatalogText, LocalText
from tests.tokenizers_made_here import byte_tokenizer

USER_TEXT = "the patient said"
ALPHABET = string.ascii_lowercase


def texts_of(count: int, *, seed: int = 0) -> list[str]:
    """Distinct documents of a few words."""
    generator = random.Random(seed)  # noqa: S311  # Not for secrets.
    return [
        f"{number} " + " ".join("".join(generator.choices(ALPHABET, k=5)) for _ in range(20))
        for number in range(count)
    ]


def documents_of(texts: Iterable[str], name: str = "made") -> Documents:
    """Documents from memory."""
    held = tuple(texts)

    def read() -> Iterator[str]:
        yield from held

    return Documents(name, "0" * 64, read)


def read_file(path: Path) -> list[str]:
    """The documents of a file."""
    empty = Catalog(models={}, texts={})
    reference = LocalText(path=str(path))
    return list(read_documents(reference, catalog=empty, cache=path.parent, log=lambda _: None))


def windows_of(documents: Documents, *, seed: int = 0, part: Part = "all", count: int = 4) -> Windows:
    """Windows of 64 tokens by a tokenizer of bytes."""
    return token_windows(
        documents, byte_tokenizer(), length=64, count=count, seed=seed, part=part, vocab_size=300
    )


def decoded(windows: Windows) -> str:
    """The text of all windows, one after another."""
    return str(byte_tokenizer().decode(windows.tokens.flatten().tolist()))


def as_txt(path: Path, texts: list[str]) -> None:
    """Documents with blank lines between them."""
    path.write_text("\n\n \n".join(texts), encoding="utf-8")


def as_jsonl(path: Path, texts: list[str]) -> None:
    """One object a line."""
    path.write_text("\n".join(json.dumps({"text": text, "id": 1}) for text in texts), encoding="utf-8")


def as_jsonl_gz(path: Path, texts: list[str]) -> None:
    """The same, compressed."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)


def as_parquet(path: Path, texts: list[str]) -> None:
    """A table with a column of texts."""
    parquet.write_table(pa.table({"text": texts, "id": list(range(len(texts)))}), path)


WRITERS = {".txt": as_txt, ".jsonl": as_jsonl, ".jsonl.gz": as_jsonl_gz, ".parquet": as_parquet}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_yields_the_same_documents(tmp_path: Path, suffix: str) -> None:
    """Documents come out in order, each once, whatever they were written as."""
    texts = ["One line.\nAnother.", "Ünïcödé 漢字", "last"]
    WRITERS[suffix](tmp_path / f"data{suffix}", [*texts, texts[0]])
    assert read_file(tmp_path / f"data{suffix}") == texts


def test_arrow_streams_are_read(tmp_path: Path) -> None:
    """The catalog's format yields the named column."""
    table = pa.table({"passage": ["a", "b", None, "a"], "other": [1, 2, 3, 4]})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    documents = Documents("x", "", partial(_read_arrow, tmp_path / "x.arrow", "passage"))
    assert list(documents) == ["a", "b"]
    assert list(documents) == ["a", "b"]


def test_byte_order_marks_are_no_text(tmp_path: Path) -> None:
    """A file that begins with a byte order mark reads as if it did not."""
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\n')
    assert read_file(tmp_path / "a.jsonl") == ["a"]


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    """Equal files under other names have equal fingerprints, another byte another one."""

    def fingerprint(name: str, content: str) -> str:
        path = tmp_path / name
        path.write_text(content)
        reference = LocalText(path=str(path))
        catalog = Catalog(models={}, texts={})
        return read_documents(reference, catalog=catalog, cache=tmp_path, log=print).fingerprint

    assert fingerprint("a.txt", "x") == fingerprint("b.txt", "x") != fingerprint("c.txt", "y")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{"text": "a"}\n{"text": the patient said}\n', 2),
        (b'{"text": "a"}\n\n{"txt": "the patient said"}\n', 3),
        (b'["the patient said"]', 1),
        (b'{"text": 3}', 1),
        (b'{"text": "a"}\n{"text": "the patient said \xff"}', 2),
        (b'{"text": "the patient said \\ud800"}', 1),
    ],
    ids=["json", "key", "list", "number", "utf-8", "surrogate"],
)
def test_malformed_lines_are_named_not_quoted(tmp_path: Path, content: bytes, line: int) -> None:
    """The error names file and line; the text itself appears nowhere, not even as a cause."""
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_file(path)
    assert f"data.jsonl, line {line}:" in caught.value.message
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.hint
    assert USER_TEXT not in shown


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 1000, mtime=0)[:-20]),
        ("no.jsonl.gz", b"plain"),
        ("bad.jsonl.gz", gzip.compress(b"x" * 50, mtime=0)[:12] + b"\xff" * 30),
        ("no.parquet", b"PAR1 nothing"),
        ("latin.txt", b"caf\xe9"),
        ("table.csv", b"a,b"),
    ],
)
def test_broken_files_are_data_errors(tmp_path: Path, name: str, content: bytes) -> None:
    """Files cut short, of another kind or in another encoding are reported as such, by name."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        read_file(tmp_path / name)


@pytest.mark.parametrize("table", [{"other": ["a"]}, {"text": [1, 2]}])
def test_parquet_needs_a_text_column(tmp_path: Path, table: dict[str, list[object]]) -> None:
    """A table without texts under `text` is a data error."""
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(DataError):
        read_file(tmp_path / "a.parquet")


def test_endless_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line over the cap is refused without having been held whole."""
    monkeypatch.setattr("ghosted_core.documents.MAX_LINE_BYTES", 100)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x" * 200}))
    with pytest.raises(DataError, match="line 1: longer than 100 bytes"):
        read_file(tmp_path / "a.jsonl")


def test_endless_documents_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a text file without an empty line."""
    monkeypatch.setattr("ghosted_core.documents.MAX_DOCUMENT_CHARACTERS", 100)
    (tmp_path / "a.txt").write_text("word\n" * 50)
    with pytest.raises(DataError, match="line 21: a document of more than"):
        read_file(tmp_path / "a.txt")


@pytest.mark.parametrize("reference", [LocalText(path="/no/such.txt"), CatalogText(alias="none")])
def test_what_is_not_there_is_not_found(tmp_path: Path, reference: LocalText | CatalogText) -> None:
    """Neither a file nor an alias that does not exist is anything else than not found."""
    with pytest.raises(DataNotFoundError):
        read_documents(reference, catalog=builtin_catalog(), cache=tmp_path, log=lambda _: None)


def test_parts_share_no_document_and_miss_none() -> None:
    """Calibration and evaluation are disjoint, together everything, about three to one."""
    digests = [document_digest(text) for text in texts_of(2000)]
    calibration = [in_part(digest, "calibration") for digest in digests]
    evaluation = [in_part(digest, "evaluation") for digest in digests]
    assert all(a != b for a, b in zip(calibration, evaluation, strict=True))
    assert all(in_part(digest, "all") for digest in digests)
    # Four standard deviations of a binomial with p = 1/4.
    assert abs(sum(evaluation) - 500) < 4 * (2000 * 0.25 * 0.75) ** 0.5


def test_windows_are_the_joined_text() -> None:
    """The windows, one after another, are a prefix of the shuffled documents joined by empty lines."""
    texts = texts_of(30)
    windows = windows_of(documents_of(texts), count=20)
    text = decoded(windows)
    parts = text.split("\n\n")
    assert windows.tokens.shape == (20, 64)
    assert windows.tokens.dtype == torch.int64
    assert set(parts[:-1]) <= set(texts)
    assert len(set(parts[:-1])) == len(parts) - 1
    assert any(document.startswith(parts[-1]) for document in texts)


def test_chunking_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens do not depend on how much text is tokenised or held at once."""
    whole = windows_of(documents_of(texts_of(50)), count=60).tokens
    monkeypatch.setattr("ghosted_core.data.CHUNK_CHARACTERS", 1)
    monkeypatch.setattr("ghosted_core.data.CHARACTERS_PER_TOKEN", 0)
    assert torch.equal(windows_of(documents_of(texts_of(50)), count=60).tokens, whole)


def test_the_seed_decides_the_order() -> None:
    """One seed gives one result, whatever the order in the file; another seed another."""
    texts = texts_of(50)
    first = windows_of(documents_of(texts), seed=1)
    again = windows_of(documents_of(reversed(texts)), seed=1)
    other = windows_of(documents_of(texts), seed=2)
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.tokens, other.tokens)


def test_windows_of_parts_share_no_document() -> None:
    """What is evaluated was not calibrated on, whatever the seeds."""
    texts = texts_of(200)

    def used(part: Part, seed: int) -> set[str]:
        windows = windows_of(documents_of(texts), part=part, seed=seed, count=30)
        return set(decoded(windows).split("\n\n")[:-1])

    assert used("calibration", 1)
    assert used("evaluation", 2)
    assert not used("calibration", 1) & used("evaluation", 2)


def test_only_what_is_needed_is_tokenised() -> None:
    """A few windows out of many documents take a few documents."""
    windows = windows_of(documents_of(texts_of(5000)), count=1)
    assert windows.description["documents"] < 20


def test_bos_begins_each_window_where_the_tokenizer_would() -> None:
    """With a tokenizer that prepends BOS each window begins with it, followed by the same text."""
    plain = windows_of(documents_of(texts_of(30)))
    documents = documents_of(texts_of(30))
    begun = token_windows(
        documents, byte_tokenizer(bos=True), length=65, count=4, seed=0, part="all", vocab_size=300
    )
    assert (begun.tokens[:, 0] == byte_tokenizer(bos=True).bos_token_id).all()
    assert torch.equal(begun.tokens[:, 1:], plain.tokens)
    assert begun.description["bos"] != plain.description["bos"]


def test_the_description_is_json_and_complete() -> None:
    """The description can be stored, and says all that the tokens depend on."""
    description = windows_of(documents_of(texts_of(30)), seed=7).description
    assert json.loads(json.dumps(description)) == description
    assert {
        "dataset",
        "fingerprint",
        "part",
        "windows",
        "length",
        "seed",
        "joint",
        "bos",
        "documents",
    } == set(description)


def test_too_little_text_is_counted() -> None:
    """The error says how many tokens there are and how many are needed."""
    with pytest.raises(TooFewTokensError, match=r"has 12 tokens; 2 windows of 64 need 128\."):
        windows_of(documents_of(["hello", "world"]), count=2)


def test_foreign_tokens_are_refused() -> None:
    """A tokenizer with more tokens than the model embeds does not belong to it."""
    with pytest.raises(InvalidSpecError, match="embeds only 50 tokens"):
        token_windows(
            documents_of(texts_of(9)), byte_tokenizer(), length=8, count=2, seed=0, part="all", vocab_size=50
        )


def test_long_texts_raise_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A text beyond the tokenizer's limit is cut by us; its warning about that must not appear."""
    tokenizer: PreTrainedTokenizerFast = byte_tokenizer()
    tokenizer.model_max_length = 16
    with warnings.catch_warnings(), caplog.at_level("DEBUG"):
        warnings.simplefilter("error")
        token_windows(
            documents_of(texts_of(9)), tokenizer, length=8, count=2, seed=0, part="all", vocab_size=300
        )
    assert caplog.records == []


@pytest.mark.real
def test_the_builtin_text_is_what_the_catalog_says(real_cache: Path) -> None:
    """BoolQ's validation passages: 2938 distinct ones."""
    reference = CatalogText(alias="boolq-passages")
    documents = read_documents(reference, catalog=builtin_catalog(), cache=real_cache, log=lambda _: None)
    assert sum(1 for _ in documents) == 2938
