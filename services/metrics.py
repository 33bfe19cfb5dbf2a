"""/metrics: what operators watch, from the database, so that every process of the API says the same."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from services.db.models import Job, Tally
from services.db.sessions import Database, ReadSession
from services.dependencies import Tools, allow_metrics
from services.jobs.states import JobState
from services.tallies import ATTEMPTS, STAGES

CACHE_SECONDS = 5.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter(tags=["health"])


@dataclass(frozen=True)
class Figures:
    """What one look at the database found; seconds are null without a job that waits."""

    queued: int
    running: int
    oldest_queued_seconds: float
    attempts: dict[str, int] = field(default_factory=dict)
    stages: dict[str, tuple[int, float]] = field(default_factory=dict)


def look(session: ReadSession) -> Figures:
    """The figures as they are now; reads no more of `jobs` than those that wait or run."""
    counts = {state: _count(session, state) for state in (JobState.QUEUED, JobState.RUNNING)}
    # Ids sort by time, so the oldest is the first of an index.
    age = func.extract("epoch", func.now() - Job.created_at)
    oldest = session.scalar(select(age).where(Job.state == JobState.QUEUED).order_by(Job.id).limit(1))
    tallies = session.scalars(select(Tally)).all()
    return Figures(
        queued=counts[JobState.QUEUED],
        running=counts[JobState.RUNNING],
        oldest_queued_seconds=float(oldest or 0),
        attempts={one.label: one.count for one in tallies if one.name == ATTEMPTS},
        stages={one.label: (one.count, one.seconds) for one in tallies if one.name == STAGES},
    )


def _count(session: ReadSession, state: JobState) -> int:
    return session.scalar(select(func.count()).select_from(Job).where(Job.state == state)) or 0


class Figured(Collector):
    """Hands Prometheus the figures, at most `CACHE_SECONDS` old."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._figures: Figures | None = None
        self._stale_at = 0.0

    def collect(self) -> Iterable[Metric]:
        """The figures in Prometheus' words. No label is an id: there are as many as jobs."""
        found = self._current()
        yield GaugeMetricFamily("ghosted_jobs_queued", "Jobs that wait.", value=found.queued)
        yield GaugeMetricFamily("ghosted_jobs_running", "Jobs that a worker runs.", value=found.running)
        yield GaugeMetricFamily(
            "ghosted_oldest_queued_seconds",
            "Age of the oldest job that waits; 0 if none does.",
            value=found.oldest_queued_seconds,
        )
        attempts = CounterMetricFamily("ghosted_attempts", "Attempts that ended.", labels=["cause"])
        for cause, count in sorted(found.attempts.items()):
            attempts.add_metric([cause], count)
        yield attempts
        stages = SummaryMetricFamily("ghosted_stage_seconds", "Time that stages took.", labels=["stage"])
        for stage, (count, seconds) in sorted(found.stages.items()):
            stages.add_metric([stage], count_value=count, sum_value=seconds)
        yield stages

    def describe(self) -> Iterable[Metric]:
        """Nothing: asking for names must not ask the database."""
        return ()

    def _current(self) -> Figures:
        # Under the lock, so that many scrapes at once are one look.
        with self._lock:
            if self._figures is None or self._clock() >= self._stale_at:
                with self._database.read() as session:
                    self._figures = look(session)
                self._stale_at = self._clock() + CACHE_SECONDS
            return self._figures


def registry_of(database: Database) -> CollectorRegistry:
    """A registry with our figures and nothing else."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figured(database))
    return registry


def _registry(request: Request, tools: Tools) -> CollectorRegistry:
    found = getattr(request.app.state, "metrics", None)
    if not isinstance(found, CollectorRegistry):
        found = request.app.state.metrics = registry_of(tools.database)
    return found


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    dependencies=[Depends(allow_metrics)],
)
def metrics(registry: Annotated[CollectorRegistry, Depends(_registry)]) -> PlainTextResponse:
    """Figures for Prometheus."""
    return PlainTextResponse(generate_latest(registry).decode(), media_type=CONTENT_TYPE)
