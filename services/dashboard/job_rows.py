"""A job in a list: what it does, how far it is, what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ghosted_core.catalog import Catalog
from ghosted_core.sizes import config_sizes
from ghosted_core.spec import RECOVERIES, STRATEGIES, resolve_amount
from services.dashboard import job_queries
from services.dashboard.history import Times, times
from services.dashboard.job_figures import ALWAYS
from services.db.models import Job
from services.db.sessions import ReadSession
from services.jobs.schemas import FailureRead, JobRead, ProgressRead
from services.jobs.showing import show
from services.jobs.states import JobState

TITLES = {kind.model_fields["name"].default: kind.title for kind in (*STRATEGIES, *RECOVERIES)}
# A worker that runs a job renews its lease several times within half of it.
STALE_SHARE = 0.5


@dataclass(frozen=True)
class Removal:
    """How many layers go, as asked for and as a number of all; None where that is not known yet."""

    asked: str
    count: int | None
    of: int | None


@dataclass(frozen=True)
class Perplexity:
    """Of the model as it was, cut, and cut and repaired; None where not measured."""

    dense: float | None
    pruned: float | None
    repaired: float | None

    @property
    def highest(self) -> float | None:
        """The worst of them, which fills its bar."""
        return max((one for one in (self.dense, self.pruned, self.repaired) if one is not None), default=None)


@dataclass(frozen=True)
class JobRow:
    """A job in a list."""

    id: UUID
    state: JobState
    model: str
    revision: str | None
    strategy: str
    recovery: str
    removal: Removal
    labels: Mapping[str, str]
    attempt: int
    progress: ProgressRead | None
    stage_ends_at: datetime | None
    queue_position: int | None
    waiting_reason: str | None
    failure: FailureRead | None
    perplexity: Perplexity
    times: Times
    created_at: datetime
    last_seen_at: datetime | None
    stale: bool
    cancelling: bool


def job_rows(
    session: ReadSession, jobs: Sequence[Job], catalog: Catalog, *, lease_seconds: float, now: datetime
) -> list[JobRow]:
    """The jobs as a list shows them."""
    names = [f"perplexity_{variant}" for variant in ALWAYS]
    metrics = job_queries.values_of(session, jobs, names)
    layers = job_queries.layer_counts(session, jobs)
    spent = times(session, jobs)
    return [
        _row(
            job,
            spent[job.id],
            perplexity_of(metrics.get(job.id, {})),
            removal_of(job.spec, layers.get(job.id) or known_layers(job.spec, catalog)),
            stale=is_stale(job, now, lease_seconds),
        )
        for job in show(session, jobs, lease_seconds=lease_seconds)
    ]


def is_stale(job: JobRead, now: datetime, lease_seconds: float) -> bool:
    """Whether nothing was heard of a running job for longer than its worker is usually silent."""
    seen = job.last_seen_at
    silent = seen is not None and now - seen > timedelta(seconds=STALE_SHARE * lease_seconds)
    return job.state is JobState.RUNNING and silent


def stage_end(job: JobRead) -> datetime | None:
    """When the running stage ends, at its pace so far."""
    if job.progress is None or job.progress.eta_seconds is None or job.last_seen_at is None:
        return None
    return job.last_seen_at + timedelta(seconds=job.progress.eta_seconds)


def _row(job: JobRead, spent: Times, perplexity: Perplexity, removal: Removal, *, stale: bool) -> JobRow:
    model, revision = model_of(job.spec)
    return JobRow(
        id=job.id,
        state=job.state,
        model=model,
        revision=revision,
        strategy=title_of(job.spec["strategy"]),
        recovery=title_of(job.spec["recovery"]),
        removal=removal,
        labels=job.labels,
        attempt=job.attempt,
        progress=job.progress if job.state is JobState.RUNNING else None,
        stage_ends_at=stage_end(job) if job.state is JobState.RUNNING else None,
        queue_position=job.queue_position,
        waiting_reason=job.waiting_reason,
        failure=job.failure,
        perplexity=perplexity,
        times=spent,
        created_at=job.created_at,
        last_seen_at=job.last_seen_at,
        stale=stale,
        cancelling=job.cancel_requested_at is not None and not job.done,
    )


def model_of(spec: Mapping[str, Any]) -> tuple[str, str | None]:
    """What a spec's model is called, and its revision."""
    model = spec["model"]
    return str(model.get("id") or model.get("alias") or model.get("path")), model.get("revision")


def title_of(method: Mapping[str, Any]) -> str:
    """What a strategy or a recovery is called."""
    return TITLES.get(method["name"], str(method["name"]))


def perplexity_of(metrics: Mapping[str, float | None]) -> Perplexity:
    """The perplexities among `metrics`."""
    return Perplexity(*(metrics.get(f"perplexity_{variant}") for variant in ALWAYS))


def known_layers(spec: Mapping[str, Any], catalog: Catalog) -> int | None:
    """How many layers the spec's model has, if this installation knows it."""
    config = catalog.configs.get(str(spec["model"].get("alias")))
    sizes = None if config is None else config_sizes(config)
    return None if sizes is None else sizes.layer_count


def removal_of(spec: Mapping[str, Any], of: int | None) -> Removal:
    """How many of a model's `of` layers the spec removes."""
    indices = spec["strategy"].get("indices")
    if indices is not None:
        return Removal(f"{len(indices)} named", len(indices), of)
    asked = spec["layers"]
    count = resolve_amount(asked, of) if of is not None else asked if isinstance(asked, int) else None
    return Removal(str(asked), count, of)
