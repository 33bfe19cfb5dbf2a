"""All pages of the dashboard, and the files that they load."""

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from services.dashboard import (
    actions,
    assets,
    compare_page,
    job_page,
    jobs_page,
    login_page,
    submit_page,
    system_page,
)
from services.dashboard.page_routes import page_router
from services.dashboard.urls import HOME

home = page_router()


@home.get("/")
def show_home() -> Response:
    """The first page."""
    return RedirectResponse(HOME)


router = APIRouter()
for _part in (
    home,
    login_page.router,
    jobs_page.router,
    submit_page.router,
    compare_page.router,
    system_page.router,
    actions.router,
    job_page.router,
    assets.router,
):
    router.include_router(_part)
