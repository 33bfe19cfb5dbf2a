import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ghosted_core.catalog import builtin_catalog
from ghosted_core.documents import read_documents
from ghosted_core.spec import LocalText
from services.errors import UploadRefusedError
from services.uploads.checking import CheckedText, TextFormat, check_text

LONGEST = 1000
TXT, JSONL = TextFormat.TXT, TextFormat.JSONL


def check(content: bytes, kind: TextFormat, piece: int = 7) -> CheckedText:
    """The finding on `content` that arrives in small pieces."""
    pieces = (content[start : start + piece] for start in range(0, len(content), piece))
    return check_text(pieces, kind, max_line_bytes=LONGEST)


def rows(*texts: str) -> bytes:
    return "\n".join(json.dumps({"text": text}) for text in texts).encode()


def test_documents_are_counted() -> None:
    """Paragraphs of txt and rows of jsonl count, blank ones do not."""
    assert check(b"one\ntwo\n\n\n three \n", TXT).documents == 2
    assert check(rows("one", " ", "two") + b"\n\n", JSONL).documents == 2


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_the_checksum_is_that_of_all_bytes(content: bytes, piece: int) -> None:
    """Length and SHA-256 are those of the whole file, however it arrives."""
    text = b"x" + content.hex().encode()
    found = check(text, TXT, piece)
    assert (found.size_bytes, found.sha256) == (len(text), hashlib.sha256(text).hexdigest())


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"", TXT, "no text"),
        (b"\n \n", TXT, "no text"),
        (rows("", "  "), JSONL, "no text"),
        (b"good\n\xff\xfe", TXT, "line 2: not UTF-8"),
        (b"good\n" + b"x" * (LONGEST + 1), TXT, "line 2: longer than"),
        (rows("good") + b"\n{", JSONL, "line 2: not valid JSON"),
        (b"[" * 900, JSONL, "line 1: not valid JSON"),
        (b'{"text": 1}', JSONL, "line 1: no object"),
        (b'["text"]', JSONL, "line 1: no object"),
        (b'{"txt": "hush"}', JSONL, "line 1: no object"),
        (b'{"text": "\\ud800"}', JSONL, "line 1: half of a surrogate"),
        (b'{"text": ' + b"9" * 900 + b"}", JSONL, "line 1: no"),
        (b"\x1f\x8b\x08\x00", JSONL, "line 1: not UTF-8"),
        (b"PK\x03\x04\x00\xff", TXT, "line 1: not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused(content: bytes, kind: TextFormat, said: str) -> None:
    """Broken, binary, packed, empty and too long files are refused by line, unquoted."""
    with pytest.raises(UploadRefusedError, match=said) as caught:
        check(content, kind)
    assert "hush" not in caught.value.message


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    """An endless line is refused once it is too long, not when it ends."""
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 100

    with pytest.raises(UploadRefusedError, match="line 1: longer"):
        check_text(endless(), TXT, max_line_bytes=LONGEST)
    assert taken == LONGEST // 100 + 1


@pytest.mark.parametrize("kind", TextFormat)
@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + rows("one", "two\n\nthree"), rows("a\u2028b", "c")])
def test_what_passes_can_be_read_by_a_job(tmp_path: Path, kind: TextFormat, content: bytes) -> None:
    """The job's reader finds text in every file that passes."""
    check(content, kind)
    file = tmp_path / f"text.{kind.value}"
    file.write_bytes(content)
    read = partial(read_documents, catalog=builtin_catalog(), cache=tmp_path, log=pytest.fail)
    assert list(read(LocalText(path=str(file))))
