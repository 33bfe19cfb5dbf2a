"""/system: to be written."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.user import CurrentUser
from services.dependencies import ReadSession

router = page_router()


@dataclass(frozen=True)
class SystemPage:
    """To be written."""

    title: str


def system_page(session: ReadSession, user: CurrentUser) -> SystemPage:
    """The page's data."""
    return SystemPage("System")


Made = Annotated[SystemPage, Depends(system_page)]


@router.get("/system.json")
def system_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/system")
def system_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "system.html", page, user)
