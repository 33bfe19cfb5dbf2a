import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ghosted_core.corpora import CORPORA, corpus_windows
from ghosted_core.data import Windows
from ghosted_core.errors import DataError, DataNotFoundError, InvalidSpecError, TooFewTokensError
from tests.tokenizers_made_here import byte_tokenizer

ROWS = ["", " = Title = \n", "", " First row . \n", "Second row, a longer one"]


def rows_file(folder: Path, rows: list[str]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return path


def windows_of(
    name: str, path: Path, *, length: int = 8, count: int = 3, bos: bool = False, vocab_size: int = 300
) -> Windows:
    tokenizer = byte_tokenizer(bos=bos)
    return corpus_windows(CORPORA[name], path, tokenizer, length=length, count=count, vocab_size=vocab_size)


def text_in(windows: Windows) -> str:
    return str(byte_tokenizer().decode(windows.tokens.flatten(), clean_up_tokenization_spaces=False))


def test_wikitext2_is_its_rows_joined_by_blank_lines(tmp_path: Path) -> None:
    """Empty rows included, none stripped, in the order of the file: as GPTQ's scripts have it."""
    found = windows_of("wikitext2", rows_file(tmp_path, ROWS))
    assert text_in(found) == "\n\n".join(ROWS)[:24]


def test_c4_is_its_documents_joined_by_spaces(tmp_path: Path) -> None:
    """GPTQ's "c4-new"."""
    found = windows_of("c4", rows_file(tmp_path, ["one document", "another", "a third"]))
    assert text_in(found) == "one document another a third"[:24]


def test_ptb_is_its_stripped_lines_joined_by_blank_lines(tmp_path: Path) -> None:
    """The file has a space at both ends of each line."""
    (tmp_path / "ptb.txt").write_text(" no it was n't black monday \n but while\n")
    assert text_in(windows_of("ptb", tmp_path / "ptb.txt")) == "no it was n't black monday\n\nbut while"[:24]


def test_long_tokens_are_no_want_of_text(tmp_path: Path) -> None:
    """As much of the text is read as is needed, however few tokens its characters make."""
    backend = Tokenizer(models.WordLevel(vocab={"y": 0, "x" * 40: 1}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    path = rows_file(tmp_path, ["x" * 40] * 30)
    found = corpus_windows(CORPORA["c4"], path, tokenizer, length=8, count=3, vocab_size=2)
    assert found.tokens.tolist() == [[1] * 8] * 3


def test_each_window_begins_with_bos_where_the_tokenizer_says_so(tmp_path: Path) -> None:
    """And holds one token less of the text."""
    found = windows_of("c4", rows_file(tmp_path, ["abcdefghijklmnopqrstuvwxyz"]), bos=True)
    assert found.tokens[:, 0].unique().tolist() == [byte_tokenizer().bos_token_id]
    plain = windows_of("c4", rows_file(tmp_path, ["abcdefghijklmnopqrstuvwxyz"]), length=7)
    assert (found.tokens[:, 1:] == plain.tokens).all()
    assert found.description["bos"] != plain.description["bos"]


def test_a_short_text_is_refused(tmp_path: Path) -> None:
    """With the numbers."""
    with pytest.raises(TooFewTokensError, match="has 5 tokens; 24 are needed"):
        windows_of("c4", rows_file(tmp_path, ["short"]))


@pytest.mark.parametrize("content", [b"{", b"[]\n", b'{"other": 1}\n', b"\xff\xfe"])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    """As a fault of the data, not with a traceback of the reader."""
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"rows\.jsonl"):
        windows_of("c4", tmp_path / "rows.jsonl")


def test_no_file_and_no_embedding(tmp_path: Path) -> None:
    """Both are told apart from bad content."""
    with pytest.raises(DataNotFoundError):
        windows_of("c4", tmp_path / "nothing.jsonl")
    with pytest.raises(InvalidSpecError, match="embeds only 50"):
        windows_of("c4", rows_file(tmp_path, ["a long enough document of text"]), vocab_size=50)
