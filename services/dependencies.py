"""What endpoints ask for, and where a request's transaction ends."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from services.auth.repository import find_key
from services.db import sessions
from services.errors import UnauthenticatedError
from services.jobs.repository import Viewer
from services.toolbox import Toolbox

bearer = HTTPBearer(auto_error=False, scheme_name="ApiKey", description="A key of `ghosted keys create`.")


def _toolbox(request: Request) -> Toolbox:
    tools = request.app.state.toolbox
    if not isinstance(tools, Toolbox):
        raise TypeError(f"the application was started without its tools, but with {type(tools)}")
    return tools


Tools = Annotated[Toolbox, Depends(_toolbox)]


def _read_session(tools: Tools) -> Iterator[sessions.ReadSession]:
    with tools.database.read() as session:
        yield session


def _write_session(tools: Tools) -> Iterator[sessions.WriteSession]:
    with tools.database.write() as session:
        yield session


# The scope makes the transaction end before the response begins. With the default scope it would
# end afterwards, and a commit that fails would still be answered with 2xx.
ReadSession = Annotated[sessions.ReadSession, Depends(_read_session, scope="function")]
WriteSession = Annotated[sessions.WriteSession, Depends(_write_session, scope="function")]


def _viewer(
    tools: Tools, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> Viewer:
    if not tools.settings.auth_enabled:
        return Viewer(None)
    if credentials is None:
        raise UnauthenticatedError("this request carries no API key")
    with tools.database.read() as session:
        key_id = find_key(session, credentials.credentials)
    if key_id is None:
        raise UnauthenticatedError("this API key is unknown or revoked")
    return Viewer(key_id)


CurrentViewer = Annotated[Viewer, Depends(_viewer)]
