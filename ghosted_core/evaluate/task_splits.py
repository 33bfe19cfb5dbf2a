"""Which splits of its data set a task of the harness uses, where only some of them are there."""

from collections.abc import Container, Mapping
from typing import Any

SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")


def over_splits(settings: Mapping[str, Any], present: Container[str]) -> dict[str, Any]:
    """The settings of a task, in which no split is named that is not `present`.

    Where examples for prompts are from the split that is scored, the harness never gives a question
    among its own examples.
    """
    # Left in, the harness looks for a split even where it is not needed.
    kept = {key: value for key, value in settings.items() if key not in SPLITS or value in present}
    examples = dict(settings.get("fewshot_config") or {})
    if examples.get("split") not in present:
        examples.pop("split", None)
    scored = kept.get("test_split", kept.get("validation_split"))
    if scored is not None and _split_of_examples(kept, examples) == scored:
        # The harness leaves a question out of its own examples only if these two name the same split.
        kept["test_split"] = examples["split"] = scored
    return kept | ({"fewshot_config": examples} if examples else {})


def _split_of_examples(settings: Mapping[str, Any], examples: Mapping[str, Any]) -> Any:
    """As the harness chooses it; None where the task brings examples of its own."""
    named = examples.get("split", settings.get("fewshot_split"))
    if named is not None or "samples" in examples:
        return named
    order = ("training_split", "validation_split", "test_split")
    return next((settings[key] for key in order if key in settings), None)
