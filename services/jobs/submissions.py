"""What the API takes: a whole request for a job, or edits of an earlier one."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import Field, StringConstraints, ValidationError

from ghosted_core.spec import (
    Calibration,
    Evaluation,
    Frozen,
    JobSpec,
    LayerAmount,
    ModelReference,
    Recovery,
    Strategy,
)
from ghosted_core.spec.base import Integer
from ghosted_core.spec.finetuning import FinetuneChoice
from services.db.models import Job

LABEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}"
LABEL_TEXT = r"[^\x00]{0,256}"
LabelName = Annotated[str, StringConstraints(pattern=f"^{LABEL_NAME}$")]
LabelText = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00]*$")]
Labels = dict[LabelName, LabelText]
# Of these a part may be edited; of everything else the new value takes the old one's place.
MERGED = frozenset({"calibration", "evaluation", "finetune"})
# Where null is a value; elsewhere it means the default.
NULLABLE = frozenset({"evaluation"})


class JobSubmission(JobSpec):
    """A JobSpec, and beside it what does not change the result."""

    labels: Labels = Field(
        default={}, max_length=32, description="Names and texts of your own, given back as they are."
    )
    deadline_seconds: Integer | None = Field(
        default=None, ge=1, description="How long the job may run; the operator sets default and limit."
    )

    def to_spec(self) -> JobSpec:
        """The part that decides the result."""
        return JobSpec.model_validate(self.model_dump(exclude={"labels", "deadline_seconds"}))


class JobEdits(Frozen):
    """What a clone is to have other than the job it is made of; what is left out stays."""

    model: ModelReference | None = None
    strategy: Strategy | None = None
    layers: LayerAmount | None = None
    recovery: Recovery | None = None
    calibration: Calibration | None = Field(default=None, description="What is left out of it stays.")
    finetune: FinetuneChoice = Field(
        default=None, description="What is left out of it stays; null trains nothing."
    )
    evaluation: Evaluation | None = Field(
        default=None, description="What is left out of it stays; null measures nothing."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    labels: Annotated[Labels, Field(max_length=32)] | None = None
    deadline_seconds: Integer | None = Field(default=None, ge=1)


def edited(job: Job, edits: JobEdits) -> JobSubmission:
    """The submission of `job` with `edits`.

    Raises:
        RequestValidationError: together they are none.
    """
    fields: dict[str, Any] = {**job.spec, "labels": job.labels, "deadline_seconds": job.deadline_seconds}
    changes = told(edits)
    if "strategy" in changes and "layers" not in changes and isinstance(changes["strategy"], Mapping):
        # Named layers say themselves how many they are.
        fields["layers"] = None if changes["strategy"]["name"] == "explicit" else fields["layers"]
    for name, value in changes.items():
        _change(fields, name, value)
    try:
        return JobSubmission.model_validate(fields)
    except ValidationError as error:
        flaws = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(flaws, body=fields) from error


def told(edits: JobEdits) -> dict[str, Any]:
    """What the edits say, as JSON, of the parts that can be edited alone as of the whole."""
    parts = {name: part for name in MERGED if (part := getattr(edits, name)) is not None}
    return _said(edits) | {name: _said(part) for name, part in parts.items()}


def _said(part: Frozen) -> dict[str, Any]:
    """What was said of `part`; also null where dumping leaves that out."""
    dumped = part.model_dump(mode="json")
    return {name: dumped.get(name) for name in part.model_fields_set}


def _change(fields: dict[str, Any], name: str, value: Any) -> None:
    if value is None and name not in NULLABLE:
        fields.pop(name, None)
    elif name in MERGED and isinstance(value, Mapping) and isinstance(fields.get(name), Mapping):
        fields[name] = {**fields[name], **value}
    else:
        fields[name] = value
