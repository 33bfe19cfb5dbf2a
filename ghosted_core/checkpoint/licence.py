"""Under which terms a model may be used, as its own files say."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.repocard import metadata_load

from ghosted_core.checkpoint.source import ModelSource

# The source's words go into our files: what is not plainly an identifier stays out.
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
LICENCE_FILE = re.compile(r"(?:LICENSE|LICENCE)[\w.-]*", re.ASCII)
LONGEST_CARD_BYTES = 1 << 20
OTHER = "other"


@dataclass(frozen=True)
class Licence:
    """`name` is the Hub's identifier ("other" where it has none); `file` holds the text, if one does."""

    name: str
    file: str | None


def source_licence(source: ModelSource) -> Licence | None:
    """What the source's card and licence file say; None if neither says anything."""
    if source.form != "directory":
        return None
    name = _declared(source.path / "README.md")
    file = min(
        (path.name for path in source.path.iterdir() if LICENCE_FILE.fullmatch(path.name)), default=None
    )
    if name is None and file is None:
        return None
    return Licence(name or OTHER, file)


def _declared(card: Path) -> str | None:
    try:
        if card.stat().st_size > LONGEST_CARD_BYTES:
            return None
        metadata: Any = metadata_load(card)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None  # A card that cannot be read says nothing; the model is no worse for it.
    name = metadata.get("license") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) and IDENTIFIER.fullmatch(name) else None
