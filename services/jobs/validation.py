"""/v1/jobs:validate: what a submission would do and need, or the problem that it would be answered with."""

import time
from dataclasses import asdict
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field, SecretStr

from ghosted_core.choices import MAX_BYTES, Choices, choices_key
from ghosted_core.errors import HubUnavailableError
from ghosted_core.spec import CatalogModel, JobSpec
from services.artifacts.stages import read_small, stages_prefix
from services.dependencies import CurrentViewer, HubToken, Tools
from services.hub import HubConfig
from services.jobs import service
from services.jobs.foresight import Foreseen, Warned, foresee, warnings_of, with_earlier_choice
from services.jobs.schemas import Shown
from services.jobs.submissions import JobSubmission
from services.jobs.viewer import Viewer
from services.pinning import hub_model
from services.toolbox import Toolbox
from services.uploads.references import pinned_uploads

# An answer takes less than two seconds, whatever the Hub does: each of at most three waits for its list
# of files, and what is then left for config.json.
WITHIN_SECONDS = 1.9
LIST_SECONDS = 0.6
LEAST_SECONDS = 0.1
# After so long, what was chosen before is not looked up any more.
ENOUGH_SECONDS = 1.4
router = APIRouter(prefix="/v1", tags=["jobs"])


class ModelSizes(Shown):
    """The model as its config.json describes it."""

    model_type: str
    layer_count: int
    hidden_size: int
    vocabulary_size: int
    max_positions: int | None
    dtype: str
    parameters: int
    commit: str | None = Field(description="The Hub commit that was looked at.")


class LayerChoice(Shown):
    """What the strategy chooses among: starts of runs of layers, or single layers."""

    kind: Literal["runs", "layers"]
    choices: list[int]


class MemoryNeeded(Shown):
    """Bytes on the job's device; a lower bound. The parts of the stages come on top of the weights."""

    weights_bytes: int
    scoring_bytes: int
    statistics_bytes: int
    calibration_bytes: int
    finetune_bytes: int
    evaluation_bytes: int
    peak_bytes: int


class DiskNeeded(Shown):
    """Bytes of the result, and of what is kept meanwhile."""

    checkpoint_bytes: int
    scratch_bytes: int
    peak_bytes: int


class TimeNeeded(Shown):
    """An order of magnitude: at 5e10 operations a second on a CPU, 1e14 on a GPU, without the download."""

    operations: float
    moved_bytes: int
    cpu_seconds: float
    gpu_seconds: float


class NeedsRead(Shown):
    """Sizes before and after, in parameters and in bytes of `dtype`, and what the way there takes."""

    dtype: str
    parameters_before: int
    parameters_after: int
    operator_parameters: int
    bytes_before: int
    bytes_after: int
    memory: MemoryNeeded
    disk: DiskNeeded
    time: TimeNeeded


class WarningRead(Shown):
    """Something that does not prevent the job."""

    code: str
    detail: str
    field: str | None


class ValidationRead(Shown):
    """A submission that would be accepted, and what would come of it.

    `model`, `layers_removed`, `candidates` and `estimate` are null where the model's configuration is
    not at hand; a warning then says why. `removed` and `kept` are null where the strategy has to look
    at the model first, and no job that is still remembered did; then `candidates` says what it chooses
    among, and the estimate is for as many separate cuts as there can be. With `from_earlier` they are
    what an earlier job found on the same model and text.
    """

    spec: dict[str, Any]
    spec_digest: str
    deadline_seconds: int
    model: ModelSizes | None
    layers_removed: int | None
    removed: list[int] | None
    kept: list[int] | None
    from_earlier: bool
    candidates: LayerChoice | None
    estimate: NeedsRead | None
    warnings: list[WarningRead]


@router.post("/jobs:validate")
def validate_job(
    submission: JobSubmission, viewer: CurrentViewer, tools: Tools, hub_token: HubToken = None
) -> ValidationRead:
    """Say what a submission would do and need, without doing it; or refuse it as submitting would.

    Where the Hub does not answer, a warning `hub_unavailable` says so: what can be said without it
    is said, while submitting at that moment would be answered 503.
    """
    began = time.monotonic()
    new = service.checked(submission, viewer, tools)
    # Closed again before the Hub is asked.
    with tools.database.read() as session:
        spec = pinned_uploads(session, new.spec, viewer.owner_id)
    warned: list[Warned] = []
    spec, known = _looked_up(spec, tools, hub_token, warned)
    found = None if known is None else foresee(spec, known.config)
    if known is not None and found is None:
        detail = f"sizes of model type '{known.config.get('model_type')}' are not counted here"
        warned.append(Warned("sizes_unknown", detail, "model"))
    if found is not None:
        if time.monotonic() - began < ENOUGH_SECONDS:
            found = with_earlier_choice(spec, found, _earlier(spec, viewer, tools, hub_token))
        warned += warnings_of(spec, found)
    return _show(spec, new.deadline_seconds, found, known, warned)


def _earlier(spec: JobSpec, viewer: Viewer, tools: Toolbox, token: SecretStr | None) -> Choices | None:
    """What criteria chose in an earlier job on the same model and text, of whoever's this user may know."""
    key = choices_key(spec, tools.catalog)
    if key is None:
        return None
    prefix = stages_prefix(spec, viewer.owner_id, private=token is not None)
    content = read_small(tools.prompt_store, prefix, key, MAX_BYTES)
    return None if content is None else Choices.from_bytes(content)


def _looked_up(
    spec: JobSpec, tools: Toolbox, token: SecretStr | None, warned: list[Warned]
) -> tuple[JobSpec, HubConfig | None]:
    """`spec`, pinned if the Hub answers, with the raw configuration of its model.

    The configuration is None, with a warning why, where it cannot be had now.
    """
    if isinstance(spec.model, CatalogModel) and hub_model(spec, tools.catalog) is None:
        return spec, _of_catalog(spec.model, tools, warned)
    began = time.monotonic()
    try:
        spec = tools.hub.pinned(spec, token, timeout_seconds=LIST_SECONDS)
        named = hub_model(spec, tools.catalog)
        if named is not None:
            left = max(WITHIN_SECONDS - (time.monotonic() - began), LEAST_SECONDS)
            return spec, tools.hub.read(named, token, patience_seconds=left / 1.5)
    except HubUnavailableError as error:
        warned.append(Warned(error.code, f"{error.message} Nothing is known of the model.", "model"))
    return spec, None


def _of_catalog(model: CatalogModel, tools: Toolbox, warned: list[Warned]) -> HubConfig | None:
    config = tools.catalog.configs.get(model.alias)
    if config is None:
        warned.append(Warned("sizes_unknown", "the catalog does not say how large this model is", "model"))
    return None if config is None else HubConfig(config, None)


def _show(
    spec: JobSpec, deadline: int, found: Foreseen | None, known: HubConfig | None, warned: list[Warned]
) -> ValidationRead:
    # `removed` without a look at the model is known of few strategies.
    certain = found is not None and found.layers.removed is not None
    return ValidationRead(
        spec=spec.model_dump(mode="json"),
        spec_digest=spec.digest(),
        deadline_seconds=deadline,
        model=_show_model(found, known),
        layers_removed=None if found is None else found.count,
        removed=list(found.plan.removed) if found is not None and certain else None,
        kept=list(found.plan.kept) if found is not None and certain else None,
        from_earlier=found is not None and found.from_earlier,
        candidates=None
        if found is None
        else LayerChoice(kind=found.layers.kind, choices=list(found.layers.choices)),
        estimate=None if found is None else _show_needs(found),
        warnings=[WarningRead(**asdict(one)) for one in warned],
    )


def _show_model(found: Foreseen | None, known: HubConfig | None) -> ModelSizes | None:
    if found is None or known is None:
        return None
    sizes = {name: value for name, value in asdict(found.sizes).items() if name != "layer_parameters"}
    return ModelSizes(**sizes, commit=known.commit)


def _show_needs(found: Foreseen) -> NeedsRead:
    needs = asdict(found.estimate)
    needs["memory"]["peak_bytes"] = found.estimate.memory.peak_bytes
    needs["disk"]["peak_bytes"] = found.estimate.disk.peak_bytes
    return NeedsRead.model_validate({**needs, "time": asdict(found.duration)})
