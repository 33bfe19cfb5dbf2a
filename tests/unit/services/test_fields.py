"""The field of a refusal is one that its sender can find in the request."""

from typing import Any

import pytest
from pydantic import ValidationError

from ghosted_core.spec import JobSpec
from services.fields import field_at


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"model": "../etc"}, "model"),
        ({"model": "Upper"}, "model"),
        ({"model": {"kind": "hub", "id": ".."}}, "model.id"),
        ({"model": {"kind": "ftp", "id": "a/b"}}, "model"),
        ({"model": {"id": "a/b"}}, "model"),
        ({"strategy": "astrology"}, "strategy"),
        ({"strategy": {"name": []}}, "strategy"),
        ({"strategy": {"name": "explicit", "indices": "5-3"}}, "strategy.indices"),
        ({"strategy": {"name": "taylor", "sequences": 0}}, "strategy.sequences"),
        ({"strategy": {"name": "taylor", "name2": 0}}, "strategy.name2"),
        ({"recovery": {"name": "ghosted", "ridge": -1}}, "recovery.ridge"),
        ({"calibration": {"dataset": "Not an alias"}}, "calibration.dataset"),
        ({"calibration": {"dataset": {"upload": "x"}}}, "calibration.dataset.upload"),
        (
            {"evaluation": {"corpora": ["wikitext2", {"name": "c4", "windows": 0}]}},
            "evaluation.corpora.1.windows",
        ),
        ({"evaluation": {"prompts": ["", "x"]}}, "evaluation.prompts.0"),
        ({"finetune": {"epochs": 0}}, "finetune.epochs"),
        ({"layers": []}, "layers"),
        ([], "body"),
    ],
)
def test_the_field_is_one_of_the_request(body: Any, field: str) -> None:
    """Without the kinds that a choice was taken for, and no deeper than what was sent."""
    sent = {"model": "a/b", "layers": 2, **body} if isinstance(body, dict) else body
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(sent)
    location = ("body", *caught.value.errors()[0]["loc"])
    assert field_at(location, sent) == field


def test_other_places_are_told_as_they_are() -> None:
    """Parameters and headers have no body to be looked for in; a field that is missing is named."""
    assert field_at(("query", "limit")) == "limit"
    assert field_at(("body", "model"), {"layers": 2}) == "model"
    assert field_at(("body",), None) == "body"
