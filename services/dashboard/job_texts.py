"""What the models wrote, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.dashboard.job_figures import VARIANTS


@dataclass(frozen=True)
class Text:
    """How one of the models went on."""

    variant: str
    text: str


@dataclass(frozen=True)
class Continued:
    """A prompt, and how each model went on from it."""

    prompt: str
    texts: tuple[Text, ...]


@dataclass(frozen=True)
class Continuations:
    """All prompts of the evaluation, and which models went on from them."""

    variants: tuple[str, ...]
    prompts: tuple[Continued, ...]


def continuations_of(summary: Mapping[str, Any]) -> Continuations | None:
    """As the summary of an artifact's manifest has them; None if there are none."""
    found = _by_variant(summary.get("generations"))
    prompts = list(dict.fromkeys(prompt for texts in found.values() for prompt in texts))
    if not prompts:
        return None
    return Continuations(
        tuple(found),
        tuple(
            Continued(
                prompt, tuple(Text(variant, str(texts.get(prompt, ""))) for variant, texts in found.items())
            )
            for prompt in prompts
        ),
    )


def _by_variant(generations: Any) -> dict[str, Mapping[str, Any]]:
    known = generations if isinstance(generations, Mapping) else {}
    return {name: known[name] for name in VARIANTS if isinstance(known.get(name), Mapping)}
