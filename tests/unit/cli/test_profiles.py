"""Which service and key a command takes, from flags, environment and profile file."""

from pathlib import Path

import pytest

from ghosted_cli.connection import DEFAULT_URL, Connection, choose
from ghosted_cli.profiles import ProfileError, find_profile, open_to_others, profile_file, profile_names
from ghosted_client import NotAuthenticatedError

TEXT = """
[default]
url = "http://usual"
key = "usual-key"

[work]
url = "https://work.example.org/"
key_file = "KEY_FILE"

[open]
url = "http://open"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A profile file that only its owner can read."""
    kept = tmp_path / "work-key"
    kept.write_text("work-key\n")
    kept.chmod(0o600)
    made = tmp_path / "profiles.toml"
    made.write_text(TEXT.replace("KEY_FILE", str(kept)))
    made.chmod(0o600)
    return made


def chosen(
    file: Path, *, profile: str | None = None, url: str | None = None, **environment: str
) -> Connection:
    return choose(url, None, profile, environment, file)


def test_without_anything_it_is_the_local_service(tmp_path: Path) -> None:
    """No flag, no variable, no file: the address that `ghosted up` takes first, without a key."""
    assert chosen(tmp_path / "none.toml") == Connection(DEFAULT_URL, None)


def test_the_profile_gives_address_and_key(file: Path) -> None:
    """The usual one if none is named; a variable or a flag names another, the flag counts more."""
    assert chosen(file) == Connection("http://usual", "usual-key")
    assert chosen(file, GHOSTED_PROFILE="work") == Connection("https://work.example.org/", "work-key")
    assert chosen(file, profile="open", GHOSTED_PROFILE="work") == Connection("http://open", None)


def test_flags_count_more_than_variables_and_these_more_than_profiles(file: Path, tmp_path: Path) -> None:
    """For address and key each."""
    variables = {"GHOSTED_URL": "http://usual/", "GHOSTED_API_KEY": "other-key"}
    assert chosen(file, **variables) == Connection("http://usual/", "other-key")
    (tmp_path / "third").write_text("third-key")
    (tmp_path / "third").chmod(0o600)
    found = choose("http://flag", tmp_path / "third", None, variables, file)
    assert found == Connection("http://flag", "third-key")


def test_empty_variables_are_none(file: Path) -> None:
    """A variable that is set to nothing takes nothing away."""
    empty = {"GHOSTED_URL": "", "GHOSTED_API_KEY": "", "GHOSTED_PROFILE": ""}
    assert chosen(file, **empty) == Connection("http://usual", "usual-key")


def test_a_profiles_key_goes_to_its_own_service_only(file: Path) -> None:
    """Another address gets no key of the profile, the same one written otherwise does."""
    assert chosen(file, url="http://elsewhere").key is None
    assert chosen(file, GHOSTED_URL="http://elsewhere").key is None
    assert chosen(file, url="http://usual/").key == "usual-key"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o600])
def test_keys_that_others_can_read_are_told(file: Path, mode: int) -> None:
    """The file that holds the key is named, be it the profiles' or one that they name; 0600 is fine."""
    file.chmod(mode)
    told = () if mode == 0o600 else (file,)
    assert chosen(file).exposed == told
    assert chosen(file, profile="open").exposed == ()
    kept = file.with_name("work-key")
    kept.chmod(mode)
    assert chosen(file, profile="work").exposed == (() if mode == 0o600 else (kept,))
    assert not open_to_others(Path("/dev/stdin"))


def test_an_unknown_profile_is_refused(file: Path) -> None:
    """The message says which there are."""
    with pytest.raises(ProfileError, match="default, work, open"):
        find_profile(file, "wrok")


@pytest.mark.parametrize(
    "text", ["[a", "[a]\nurl = 1", "[a]\nkey = 'hush'", "[a]\nurl = 'x'\nkey = 'hush'\nport = 1", "a = 1"]
)
def test_another_file_is_refused_without_quoting_it(file: Path, text: str) -> None:
    """It may hold a key; the message says what is wrong and where."""
    file.write_text(text)
    with pytest.raises(ProfileError) as caught:
        find_profile(file, None)
    assert str(file) in caught.value.message
    assert "hush" not in caught.value.message


def test_a_key_file_that_is_not_there_is_told(file: Path) -> None:
    """The profile names it, the message too."""
    file.with_name("work-key").unlink()
    with pytest.raises(NotAuthenticatedError, match="work-key"):
        chosen(file, profile="work")


def test_keys_are_not_shown(file: Path) -> None:
    """Neither profile nor connection shows its key."""
    assert "usual-key" not in repr(chosen(file)) + repr(find_profile(file, None))


def test_the_file_lies_where_the_user_keeps_settings(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Below XDG_CONFIG_HOME, or else ~/.config; the shell completes the names it holds."""
    assert profile_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/ghosted/profiles.toml")
    assert profile_file({}) == Path.home() / ".config/ghosted/profiles.toml"
    (file.parent / "ghosted").mkdir()
    file.rename(file.parent / "ghosted" / "profiles.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(file.parent))
    assert profile_names("") == ["default", "work", "open"]
    assert profile_names("w") == ["work"]
