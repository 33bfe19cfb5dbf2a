import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from ghosted_core.criteria import CRITERIA
from ghosted_core.recovery import SOLVERS
from ghosted_core.spec import RECOVERIES, STRATEGIES, HubModel, JobSpec, LocalModel

MINIMAL: dict[str, Any] = {"model": "owner/name", "layers": 2}


def test_the_vocabulary_is_torch_free() -> None:
    """Importing specs, plans, errors and the package itself loads no heavy library."""
    code = (
        "import sys, ghosted_core, ghosted_core.spec, ghosted_core.plan, ghosted_core.recorder;"
        "print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "set()"


def test_json_round_trip_keeps_the_digest() -> None:
    """A spec read back from its canonical JSON is the same spec."""
    spec = JobSpec.model_validate(MINIMAL)
    again = JobSpec.model_validate_json(spec.canonical_json())
    assert again == spec
    assert again.digest() == spec.digest()


def test_short_and_long_forms_are_one_spec() -> None:
    """Text stands for the reference or choice it names."""
    short = JobSpec.model_validate(MINIMAL | {"strategy": "streamline", "recovery": "ghosted"})
    long = JobSpec.model_validate(
        MINIMAL
        | {
            "model": {"kind": "hub", "id": "owner/name"},
            "strategy": {"name": "streamline"},
            "recovery": {"name": "ghosted", "ridge": 1e-6},
        }
    )
    assert short.digest() == long.digest()


def test_each_field_changes_the_digest() -> None:
    """Two specs with different results never share a digest."""
    changes = [
        {},
        {"layers": 3},
        {"layers": "25%"},
        {"strategy": "shortgpt"},
        {"strategy": {"name": "streamline", "keep_first": False}},
        {"model": "owner/other"},
        {"recovery": "none"},
        {"recovery": {"name": "ghosted", "weighting": "skip_first"}},
        {"recovery": {"name": "ghosted", "fit": "sequential"}},
        {"recovery": {"name": "ghosted", "ridge": "auto"}},
        {"recovery": "replace_me"},
        {"recovery": {"name": "replace_me_cosine", "objective": "accurate"}},
        {"dtype": "bfloat16"},
        {"calibration": {"seed": 1}},
        {"evaluation": None},
    ]
    digests = {JobSpec.model_validate(MINIMAL | change).digest() for change in changes}
    assert len(digests) == len(changes)


def test_explicit_indices_have_one_form() -> None:
    """Order and a redundant count do not make another spec."""
    one = {"model": "a/b", "strategy": {"name": "explicit", "indices": [3, 1]}}
    other = {"model": "a/b", "strategy": {"name": "explicit", "indices": [1, 3]}, "layers": 2}
    assert JobSpec.model_validate(one).digest() == JobSpec.model_validate(other).digest()


def test_ranges_stand_for_their_indices() -> None:
    """Text, text in a list and plain numbers: one spec, whose JSON holds the numbers."""
    forms = ["1,8-10", ["1", "8-10"], [1, "8-10"], [10, 9, 8, 1]]
    strategies = [{"name": "explicit", "indices": form} for form in forms]
    specs = [JobSpec.model_validate({"model": "a/b", "strategy": strategy}) for strategy in strategies]
    assert len({spec.digest() for spec in specs}) == 1
    assert specs[0].model_dump(mode="json")["strategy"]["indices"] == [1, 8, 9, 10]


@pytest.mark.parametrize(
    ("amount", "layer_count", "count"),
    [
        ("25%", 32, 8),
        ("25%", 30, 8),
        ("22%", 32, 7),
        ("1%", 32, 1),
        ("12.5%", 24, 3),
        (7, 32, 7),
        ("7", 32, 7),
    ],
)
def test_a_share_is_rounded_to_the_nearest_number_of_layers(
    amount: int | str, layer_count: int, count: int
) -> None:
    """Halves upwards, at least 1; a number is that number whatever the model."""
    spec = JobSpec.model_validate(MINIMAL | {"layers": amount})
    assert spec.removal_count(layer_count) == count


def test_a_share_is_kept_as_it_was_said() -> None:
    """The spec knows no model: its canonical JSON holds the share, not the number."""
    spec = JobSpec.model_validate(MINIMAL | {"layers": "25%"})
    assert '"layers":"25%"' in spec.canonical_json()
    assert JobSpec.model_validate_json(spec.canonical_json()) == spec


def test_a_wrong_amount_is_told_of_the_field_itself() -> None:
    """Not of one of the forms that it might have had."""
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(MINIMAL | {"layers": 0})
    assert [error["loc"] for error in caught.value.errors()] == [("layers",)]


@pytest.mark.parametrize(
    "text",
    [
        "../etc/passwd",
        "/etc/passwd",
        "./model",
        "a/b/c",
        "https://x/y",
        "a/..",
        "A B",
        "a/b@../c",
        "a/b@x/../y",
    ],
)
def test_text_never_names_a_path_or_address(text: str) -> None:
    """Only owner/name and aliases pass; folders need their own form."""
    with pytest.raises(ValidationError):
        JobSpec.model_validate(MINIMAL | {"model": text})


def test_a_revision_may_follow_the_id() -> None:
    """owner/name@revision pins the revision."""
    model = JobSpec.model_validate(MINIMAL | {"model": "owner/name@v1.0"}).model
    assert model == HubModel(id="owner/name", revision="v1.0")


def test_a_local_model_takes_its_own_form() -> None:
    """Paths are said in so many words."""
    spec = JobSpec.model_validate(MINIMAL | {"model": {"kind": "local", "path": "/models/x"}})
    assert spec.model == LocalModel(path="/models/x")


@pytest.mark.parametrize(
    "change",
    [
        {"layers": None},
        {"layers": 0},
        {"layers": True},
        {"layers": 2.5},
        {"layers": "0%"},
        {"layers": "100%"},
        {"layers": "-5%"},
        {"layers": "a quarter"},
        {"surprise": 1},
        {"recovery": {"name": "ghosted", "ridge": -1}},
        {"recovery": {"name": "ghosted", "ridge": float("nan")}},
        {"recovery": {"name": "ghosted", "ridge": "auto", "solver": "truncated"}},
        {"recovery": {"name": "ghosted", "ridge": "auto"}, "calibration": {"held_out_sequences": 0}},
        {"recovery": {"name": "prune_and_comp", "ridge": 1.0}},
        {"recovery": {"name": "replace_me_cosine", "objective": "vague"}},
        {"recovery": "magic"},
        {"strategy": {"name": "explicit", "indices": []}},
        {"strategy": {"name": "explicit", "indices": [1, 1]}},
        {"strategy": {"name": "explicit", "indices": "5-3"}},
        {"strategy": {"name": "explicit", "indices": ["0-999999999"]}},
        {"strategy": {"name": "explicit", "indices": "1,2"}, "layers": "25%"},
        {"strategy": {"name": "taylor", "sequences": 0}},
        {"strategy": {"name": "explicit", "indices": [1, 2, 3]}, "layers": 2},
        {"calibration": {"sequences": 0}},
    ],
)
def test_contradictions_are_refused(change: dict[str, Any]) -> None:
    """Bad values end at validation, as pydantic's error."""
    with pytest.raises(ValidationError):
        JobSpec.model_validate(MINIMAL | change)


def test_every_choice_has_code_and_a_description() -> None:
    """The forms in the spec and the registries name the same criteria and repairs."""
    assert {form.model_fields["name"].default for form in STRATEGIES} == set(CRITERIA)
    assert {form.model_fields["name"].default for form in RECOVERIES} == set(SOLVERS)
    assert all(form.__doc__ and form.title for form in (*STRATEGIES, *RECOVERIES))
