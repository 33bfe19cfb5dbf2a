"""/compare: to be written."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.user import CurrentUser
from services.dependencies import ReadSession

router = page_router()


@dataclass(frozen=True)
class ComparePage:
    """To be written."""

    title: str


def compare_page(session: ReadSession, user: CurrentUser) -> ComparePage:
    """The page's data."""
    return ComparePage("Compare")


Made = Annotated[ComparePage, Depends(compare_page)]


@router.get("/compare.json")
def compare_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/compare")
def compare_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "compare.html", page, user)
