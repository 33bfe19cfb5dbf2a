"""Where the user's services are, and with which keys: the profile file.

`$XDG_CONFIG_HOME/ghosted/profiles.toml`, a table a profile, each with `url` and `key` or `key_file`.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ghosted_core.errors import GhostedError

FILE = Path("ghosted", "profiles.toml")
# The profile that counts where none is named, if there is one.
USUAL = "default"
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class ProfileError(GhostedError):
    """The profile file does not say what was asked of it."""

    code = "profile"
    advice = "A profile is a table such as [work] with url, and key or key_file; see docs/cli.md."


class Profile(BaseModel):
    """A service and the key for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    key: str | None = Field(default=None, repr=False)
    key_file: Path | None = None


PROFILES = TypeAdapter(dict[str, Profile])


def profile_file(environment: Mapping[str, str] | None = None) -> Path:
    """Where profiles are kept; the file need not be there."""
    base = (os.environ if environment is None else environment).get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / FILE


def read_profiles(file: Path) -> dict[str, Profile]:
    """The profiles of the file by name; none if it is not there.

    Raises:
        ProfileError: it cannot be read, or is not such a file.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        return PROFILES.validate_python(tables)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # Not the error's text: it may quote the line with the key.
        raise ProfileError(f"'{file}' cannot be read: {type(error).__name__}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProfileError(f"'{file}': {where}: {first['msg']}") from None


def find_profile(file: Path, name: str | None) -> Profile | None:
    """The profile of that name; without a name the usual one, if there is one.

    Raises:
        ProfileError: there is none of that name.
    """
    profiles = read_profiles(file)
    if name is None:
        return profiles.get(USUAL)
    try:
        return profiles[name]
    except KeyError:
        known = ", ".join(profiles) or "none"
        raise ProfileError(f"'{file}' holds no profile '{name}'; it has: {known}.") from None


def open_to_others(file: Path) -> bool:
    """Whether other users of the machine may read or change the file."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    # A pipe or terminal is nobody else's, whatever its bits say.
    return stat.S_ISREG(mode) and bool(mode & OTHERS)


def profile_names(incomplete: str) -> list[str]:
    """The names that begin so, for the shell's completion."""
    try:
        return [name for name in read_profiles(profile_file()) if name.startswith(incomplete)]
    except ProfileError:
        return []
