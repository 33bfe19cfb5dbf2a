from pathlib import Path

import pytest

from ghosted_cli.request import job_spec, layer_indices, model_reference, strategy_choice, text_reference
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import Taylor


@pytest.mark.parametrize(
    ("text", "indices"), [("3", (3,)), ("3,5", (3, 5)), ("8-10", (8, 9, 10)), (" 1 , 4-4,6 ", (1, 4, 6))]
)
def test_indices_and_ranges(text: str, indices: tuple[int, ...]) -> None:
    """Ranges include both ends."""
    assert layer_indices(text) == indices


@pytest.mark.parametrize("text", ["", "a", "5-3", "-1", "1..3", "1-", "0-999999999", "9" * 5000])
def test_other_forms_are_refused(text: str) -> None:
    """With the piece that is wrong."""
    with pytest.raises(InvalidSpecError):
        layer_indices(text)


def test_a_strategy_may_bring_settings() -> None:
    """They follow the name; naming layers is a strategy of its own."""
    assert strategy_choice("taylor", None) == {"name": "taylor"}
    chosen = strategy_choice("taylor:protect=no,sequences=20", None)
    assert chosen == {"name": "taylor", "protect": False, "sequences": 20}
    strategy = job_spec({"model": "a/b", "layers": "25%", "strategy": chosen}).strategy
    assert strategy == Taylor(protect=False, sequences=20)
    assert strategy_choice("streamline", "3,8-9") == {"name": "explicit", "indices": (3, 8, 9)}


@pytest.mark.parametrize("text", ["taylor:protect", "taylor:=no", "taylor:a=1,,b"])
def test_settings_of_other_forms_are_refused(text: str) -> None:
    """With what was said."""
    with pytest.raises(InvalidSpecError, match="SETTING=VALUE"):
        strategy_choice(text, None)


def test_what_exists_or_looks_like_a_path_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders, ./x, ~/x and .gguf files are local; the rest is a Hub id or an alias."""
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    for text in ("here", "./gone", "/a/b", "m.gguf"):
        assert model_reference(text, None) == {"kind": "local", "path": str(Path(text))}
    assert model_reference("owner/name", "v1") == {"kind": "hub", "id": "owner/name", "revision": "v1"}
    assert model_reference("smollm2-135m-instruct", None) == "smollm2-135m-instruct"
    with pytest.raises(InvalidSpecError, match="neither a folder"):
        model_reference("a/b/c", None)


@pytest.mark.parametrize("text", ["./here", "an-alias", "owner/name@v1"])
def test_a_revision_that_would_do_nothing_is_refused(text: str) -> None:
    """Only a Hub id without one takes it."""
    with pytest.raises(InvalidSpecError, match="--revision"):
        model_reference(text, "v2")


def test_text_is_a_file_or_an_alias(tmp_path: Path) -> None:
    """A suffix or a slash makes it a file."""
    assert text_reference("boolq-passages") == "boolq-passages"
    assert text_reference("notes.txt") == {"kind": "local", "path": "notes.txt"}
    assert text_reference(None) is None
