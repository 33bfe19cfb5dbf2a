"""/login and /logout: a key is exchanged for a login, which a cookie stands for."""

from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from fastapi.security import HTTPAuthorizationCredentials

from services.auth import logins
from services.auth.scopes import ANYONE, Caller
from services.dashboard.forms import ActingUser, SentForm, check_origin
from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, with_patience
from services.dashboard.urls import local_target
from services.dashboard.user import cookie_name, is_safe, logged_in
from services.dependencies import Tools, identified
from services.errors import TooManyRequestsError, UnauthenticatedError
from services.toolbox import Toolbox

router = page_router()


@dataclass(frozen=True)
class LoginPage:
    """Where to go afterwards, and what was wrong with the key, or why there is no login any more."""

    target: str
    error: str | None = None
    notice: str | None = None


@router.get("/login")
def show_login(request: Request, tools: Tools, next: str | None = None) -> Response:  # noqa: A002
    """The form; whoever is logged in, or needs no login, goes on at once."""
    target = local_target(next)
    if not tools.settings.auth_enabled or logged_in(request, tools) is not None:
        return RedirectResponse(target, HTTPStatus.SEE_OTHER)
    had_one = cookie_name(request, tools.settings) in request.cookies
    page = LoginPage(target, notice="Your session has ended. Log in to go on." if had_one else None)
    return render(request, "login.html", page, None)


@router.post("/login")
def log_in(request: Request, form: SentForm, tools: Tools) -> Response:
    """The browser is logged in, if the key is one in use."""
    check_origin(request, tools.settings.public_base_url)
    target = local_target(form.text("next"))
    try:
        caller = _caller(request, tools, form.text("key"))
    except (UnauthenticatedError, TooManyRequestsError) as error:
        page = LoginPage(target, error=error.message)
        return with_patience(render(request, "login.html", page, None, status=error.status), error)
    if caller.key_id is None:
        return RedirectResponse(target, HTTPStatus.SEE_OTHER)
    lasts = tools.settings.login_seconds
    with tools.database.write() as session:
        # Another login, even of the same browser, never takes over an older one's text.
        token = logins.begin(session, caller.key_id, lasts_seconds=lasts)
    response = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    safe = is_safe(request, tools.settings)
    name = cookie_name(request, tools.settings)
    response.set_cookie(name, token, max_age=lasts, path="/", secure=safe, httponly=True, samesite="lax")
    return response


@router.post("/logout")
def log_out(request: Request, user: ActingUser, tools: Tools) -> Response:
    """Nobody is logged in with this browser."""
    if user.login is not None:
        with tools.database.write() as session:
            logins.end(session, user.login)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(
        cookie_name(request, tools.settings), path="/", secure=is_safe(request, tools.settings)
    )
    return response


def _caller(request: Request, tools: Toolbox, key: str) -> Caller:
    """Whose key this is.

    Raises:
        UnauthenticatedError: nobody's.
        TooManyRequestsError: too many attempts from this address failed.
    """
    if not tools.settings.auth_enabled:
        return ANYONE
    return identified(request, tools, HTTPAuthorizationCredentials(scheme="Bearer", credentials=key))
