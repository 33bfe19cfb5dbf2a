from typing import Any

import pytest

from ghosted_core.evaluate.task_splits import over_splits

ALL: dict[str, Any] = {
    "task": "animals",
    "training_split": "train",
    "validation_split": "validation",
    "test_split": "test",
}


@pytest.mark.parametrize(
    ("settings", "present", "scored"),
    [
        (ALL, {"test"}, "test"),
        (ALL, {"validation"}, "validation"),
        (ALL | {"fewshot_split": "dev"}, {"test"}, "test"),
        (ALL | {"fewshot_split": "validation"}, {"train", "validation"}, "validation"),
        (ALL | {"training_split": "test"}, {"test"}, "test"),
        (ALL | {"fewshot_config": {"split": "test", "sampler": "first_n"}}, {"train", "test"}, "test"),
        (ALL | {"fewshot_config": {"split": "dev", "sampler": "first_n"}}, {"test"}, "test"),
    ],
)
def test_examples_from_the_scored_split_are_known_as_such(
    settings: dict[str, Any], present: set[str], scored: str
) -> None:
    """The names that the harness compares, before it leaves out a question, are the same."""
    found = over_splits(settings, present)
    assert (found["fewshot_config"]["split"], found["test_split"]) == (scored, scored)


@pytest.mark.parametrize(
    ("settings", "present"),
    [
        (ALL, {"train", "validation", "test"}),
        (ALL, {"train", "validation"}),
        (ALL, {"validation", "test"}),
        (ALL | {"fewshot_split": "dev"}, {"dev", "validation"}),
        (ALL | {"fewshot_config": {"samples": [{"question": "?"}]}}, {"test"}),
    ],
)
def test_other_examples_are_chosen_as_the_task_says(settings: dict[str, Any], present: set[str]) -> None:
    """All that goes is the name of a split that is not there."""
    absent = {value for value in settings.values() if isinstance(value, str)} - present - {"animals"}
    expected = {key: value for key, value in settings.items() if value not in list(absent)}
    assert over_splits(settings, present) == expected
