"""Which of the texts that load and serve a checkpoint fit an artifact."""

from ghosted_core.checkpoint.snippets import OPERATOR_CODE, Snippet, sees_images, snippets
from services.artifacts.manifest import Manifest


def fitting_snippets(manifest: Manifest) -> tuple[Snippet, ...]:
    """Those for an artifact with operators at its cuts or without, of text or of images too."""
    source = manifest.summary.get("source")
    architecture = source.get("architecture") if isinstance(source, dict) else None
    return snippets(
        operators=any(file.path == OPERATOR_CODE for file in manifest.files),
        images=sees_images(str(architecture)),
    )
