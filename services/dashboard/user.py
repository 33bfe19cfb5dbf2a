"""Who looks at the dashboard."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials

from services.auth.scopes import ANYONE, Caller, Scope
from services.dependencies import Tools, bearer
from services.jobs.viewer import Viewer


@dataclass
class LoginNeededError(Exception):
    """Nobody is logged in, or not any more."""

    message: str


@dataclass(frozen=True)
class User:
    """A caller of the API, as the dashboard knows it.

    `csrf_token` goes into every form. `session` is None where no login is needed, or where the
    API's key came with the request itself.
    """

    caller: Caller
    name: str
    csrf_token: str = ""
    session: str | None = None

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


def _user(
    request: Request,
    tools: Tools,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> User:
    if not tools.settings.auth_enabled:
        return User(ANYONE, "anyone")
    raise LoginNeededError("nobody is logged in")


# Of whoever may read; pages that change something ask for more.
CurrentUser = Annotated[User, Depends(_user)]
