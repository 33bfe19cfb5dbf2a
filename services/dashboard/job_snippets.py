"""Texts to copy that load and serve a job's result; each of them is run by a test."""

from dataclasses import dataclass

from ghosted_core.checkpoint.snippets import FOLDER, OPERATOR_CODE, sees_images, snippets
from services.artifacts.manifest import Manifest


@dataclass(frozen=True)
class SnippetText:
    """A text to run beside the folder `folder`, and what has to be installed for it."""

    title: str
    language: str
    requires: tuple[str, ...]
    folder: str
    code: str


def snippet_texts(manifest: Manifest) -> tuple[SnippetText, ...]:
    """Those that fit this artifact: with operators at its cuts or without, of text or of images too."""
    source = manifest.summary.get("source")
    architecture = str(source.get("architecture")) if isinstance(source, dict) else ""
    fitting = snippets(
        operators=any(file.path == OPERATOR_CODE for file in manifest.files), images=sees_images(architecture)
    )
    return tuple(SnippetText(one.title, one.language, one.requires, FOLDER, one.code) for one in fitting)
