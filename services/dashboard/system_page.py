"""/system: the workers, the queue, and what fails."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Response
from sqlalchemy import ColumnElement, true

from services.dashboard import spec_words, system_queries
from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.system_queries import FailureCount, Queue
from services.dashboard.user import CurrentUser, User
from services.dependencies import ReadSession, Tools
from services.workers.repository import Seen, list_workers
from services.workers.schemas import WorkerRead, read_worker

router = page_router()


@dataclass(frozen=True)
class WorkerLine:
    """A worker, and what it does: the stage of whatever job, the job itself only if it is the viewer's."""

    worker: WorkerRead
    stage: str | None
    job_id: UUID | None
    model: str | None


@dataclass(frozen=True)
class SystemPage:
    """All of the page.

    Keys of the scope `admin` see the workers, and jobs of all keys as numbers; others see how many
    workers there are, and count their own jobs only.
    """

    title: str
    counts_all: bool
    queue: Queue
    failures: tuple[FailureCount, ...]
    live_workers: int
    busy_workers: int
    workers: tuple[WorkerLine, ...] | None


def system_page(session: ReadSession, user: CurrentUser, tools: Tools) -> SystemPage:
    """The page's data."""
    seen = list_workers(session, lease_seconds=tools.settings.lease_seconds)
    sees = _counted(user)
    queue = system_queries.queue(session, sees)
    return SystemPage(
        title="System",
        counts_all=user.is_admin,
        queue=queue,
        failures=system_queries.failures(session, sees),
        live_workers=sum(one.live for one in seen),
        busy_workers=sum(one.live and one.job is not None for one in seen),
        workers=_lines(seen, user) if user.is_admin else None,
    )


def _counted(user: User) -> ColumnElement[bool]:
    """Which jobs are counted: numbers of other people's jobs are for those who run the service."""
    return true() if user.is_admin else user.viewer.sees()


def _lines(seen: Sequence[Seen], user: User) -> tuple[WorkerLine, ...]:
    return tuple(_line(one, read_worker(one, user.viewer)) for one in seen)


def _line(seen: Seen, shown: WorkerRead) -> WorkerLine:
    own = seen.job if shown.running is not None else None
    return WorkerLine(
        worker=shown,
        stage=seen.job.stage if seen.job is not None else None,
        job_id=own.id if own is not None else None,
        model=spec_words.model_name(own.spec) if own is not None else None,
    )


Made = Annotated[SystemPage, Depends(system_page)]


@router.get("/system.json")
def system_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/system")
def system_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "system.html", page, user)
