"""/jobs/{job_id}: to be written."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Response

from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.user import CurrentUser
from services.dependencies import ReadSession

router = page_router()


@dataclass(frozen=True)
class JobPage:
    """To be written."""

    title: str


def job_page(job_id: UUID, session: ReadSession, user: CurrentUser) -> JobPage:
    """The page's data."""
    return JobPage("Job")


Made = Annotated[JobPage, Depends(job_page)]


@router.get("/jobs/{job_id}.json")
def job_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/jobs/{job_id}")
def job_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "job.html", page, user)
