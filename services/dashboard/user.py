"""Who looks at the dashboard."""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials

from services.addresses import address_of
from services.auth import logins, repository as keys
from services.auth.scopes import ANYONE, Caller, Scope
from services.config import Settings
from services.dashboard.urls import wants_json
from services.dependencies import Tools, bearer, identified
from services.jobs.viewer import Viewer
from services.toolbox import Toolbox

# With this beginning, browsers take the cookie over HTTPS only, and from this very host only.
SAFE_COOKIE = "__Host-ghosted-login"
PLAIN_COOKIE = "ghosted-login"


@dataclass
class LoginNeededError(Exception):
    """Nobody is logged in, or not any more."""

    message: str


@dataclass(frozen=True)
class User:
    """A caller of the API, as the dashboard knows it.

    `login` is the text of the cookie; None where no login is needed, or where the API's key came
    with the request itself.
    """

    caller: Caller
    name: str
    login: str | None = field(default=None, repr=False)

    @property
    def viewer(self) -> Viewer:
        """Whose jobs are shown: the same object that the API asks."""
        return Viewer(self.caller.key_id)

    @property
    def may_submit(self) -> bool:
        """Whether buttons that change something are shown."""
        return Scope.SUBMIT in self.caller.scopes

    @property
    def is_admin(self) -> bool:
        """Whether what belongs to nobody is shown."""
        return Scope.ADMIN in self.caller.scopes

    @property
    def csrf_token(self) -> str:
        """What every form holds: it follows from the cookie, which other sites cannot read."""
        if self.login is None:
            return ""
        return hmac.new(self.login.encode(), b"forms of the dashboard", hashlib.sha256).hexdigest()


def is_safe(request: Request, settings: Settings) -> bool:
    """Whether the users reach this service over HTTPS."""
    return request.url.scheme == "https" or (settings.public_base_url or "").startswith("https://")


def cookie_name(request: Request, settings: Settings) -> str:
    """The name of the cookie that holds the login."""
    return SAFE_COOKIE if is_safe(request, settings) else PLAIN_COOKIE


def _user(
    request: Request,
    tools: Tools,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> User:
    user = _known(request, tools, credentials)
    # Apart from the API's count: an open page must not take a program's requests away.
    tools.limiter.count_request(f"dashboard:{user.caller.key_id or address_of(request)}")
    user.caller.require(Scope.READ)
    return user


def _known(request: Request, tools: Toolbox, credentials: HTTPAuthorizationCredentials | None) -> User:
    if not tools.settings.auth_enabled:
        return User(ANYONE, "anyone")
    if credentials is not None and wants_json(request):
        return User(identified(request, tools, credentials), "")
    user = logged_in(request, tools)
    if user is None:
        raise LoginNeededError("nobody is logged in, and no API key was sent")
    return user


def logged_in(request: Request, tools: Toolbox) -> User | None:
    """Whoever is logged in, if the login and its key have not ended."""
    token = request.cookies.get(cookie_name(request, tools.settings))
    if token is None:
        return None
    with tools.database.read() as session:
        found = logins.find(session, token)
    if found is None:
        return None
    if found.use_to_note and found.caller.key_id is not None:
        with tools.database.write() as session:
            keys.note_use(session, found.caller.key_id)
    return User(found.caller, found.key_name, token)


# Of whoever may read; pages that change something ask for more.
CurrentUser = Annotated[User, Depends(_user)]
