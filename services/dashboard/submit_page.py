"""/submit: to be written."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.user import CurrentUser
from services.dependencies import ReadSession

router = page_router()


@dataclass(frozen=True)
class SubmitPage:
    """To be written."""

    title: str


def submit_page(session: ReadSession, user: CurrentUser) -> SubmitPage:
    """The page's data."""
    return SubmitPage("Submit")


Made = Annotated[SubmitPage, Depends(submit_page)]


@router.get("/submit.json")
def submit_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/submit")
def submit_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "submit.html", page, user)
