"""/jobs: to be written."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.user import CurrentUser
from services.dependencies import ReadSession

router = page_router()


@dataclass(frozen=True)
class JobsPage:
    """To be written."""

    title: str


def jobs_page(session: ReadSession, user: CurrentUser) -> JobsPage:
    """The page's data."""
    return JobsPage("Jobs")


Made = Annotated[JobsPage, Depends(jobs_page)]


@router.get("/jobs.json")
def jobs_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/jobs")
def jobs_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "jobs.html", page, user)
