"""Whether an uploaded file is text that a job can read; one line in memory at a time."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from services.errors import UploadRefusedError

TEXT_KEY = "text"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextFormat(StrEnum):
    """The kinds of file that may be uploaded. No archive: a small file could hold an endless text."""

    TXT = "txt"  # documents separated by blank lines
    JSONL = "jsonl"  # one object with the key `text` a line


@dataclass(frozen=True)
class CheckedText:
    """What a file that passed holds."""

    documents: int
    size_bytes: int
    sha256: str


def check_text(chunks: Iterable[bytes], kind: TextFormat, *, max_line_bytes: int) -> CheckedText:
    """What the file of these bytes holds, if it is UTF-8 text of its kind.

    Raises:
        UploadRefusedError: it is not; the message names the line and quotes nothing of it.
    """
    size = 0
    digest = hashlib.sha256()

    def counted() -> Iterator[bytes]:
        nonlocal size
        for chunk in chunks:
            size += len(chunk)
            digest.update(chunk)
            yield chunk

    lines = (_decoded(number, line) for number, line in _lines(counted(), max_line_bytes))
    documents = _count_objects(lines) if kind is TextFormat.JSONL else _count_paragraphs(lines)
    if not documents:
        raise UploadRefusedError("the file holds no text", field="upload")
    return CheckedText(documents, size, digest.hexdigest())


def _lines(chunks: Iterable[bytes], max_line_bytes: int) -> Iterator[tuple[int, bytes]]:
    number, rest = 0, b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            yield number, _short(number, line, max_line_bytes)
        # Before it is whole: a line without end must not fill the memory.
        _short(number + 1, rest, max_line_bytes)
    if rest:
        yield number + 1, rest


def _short(number: int, line: bytes, max_line_bytes: int) -> bytes:
    if len(line) > max_line_bytes:
        raise _refused(number, f"longer than {max_line_bytes} bytes")
    return line


def _decoded(number: int, line: bytes) -> tuple[int, str]:
    try:
        return number, (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).decode("utf-8")
    except UnicodeDecodeError:
        raise _refused(number, "not UTF-8") from None


def _count_paragraphs(lines: Iterable[tuple[int, str]]) -> int:
    count, inside = 0, False
    for _, line in lines:
        blank = not line.strip()
        count += not blank and not inside
        inside = not blank
    return count


def _count_objects(lines: Iterable[tuple[int, str]]) -> int:
    return sum(bool(_text_of(number, line).strip()) for number, line in lines if line.strip())


def _text_of(number: int, line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        # Without the cause: it would quote the text.
        raise _refused(number, "not valid JSON") from None
    text = record.get(TEXT_KEY) if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise _refused(number, f"no object with a text under '{TEXT_KEY}'")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused(number, "half of a surrogate pair is no text") from None
    return text


def _refused(number: int, what: str) -> UploadRefusedError:
    return UploadRefusedError(f"line {number}: {what}", field="upload")
