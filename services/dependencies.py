"""What endpoints ask for, and where a request's transaction ends."""

import re
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from services.addresses import address_of
from services.auth import repository as keys
from services.auth.scopes import ANYONE, Caller, Scope, scope_for
from services.db import sessions
from services.errors import InvalidRequestError, UnauthenticatedError
from services.jobs.repository import Viewer
from services.toolbox import Toolbox

# What can stand in a header and is not endless; which tokens are good, the Hub decides.
HUB_TOKEN = re.compile(r"[\x21-\x7e]{8,512}")
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


def _caller(
    request: Request,
    tools: Tools,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> Caller:
    """Who sends this request, counted against the key's limit."""
    caller = ANYONE if not tools.settings.auth_enabled else identified(request, tools, credentials)
    # Without keys, whoever has the same address shares a limit.
    tools.limiter.count_request(address_of(request) if caller.key_id is None else str(caller.key_id))
    return caller


def identified(request: Request, tools: Toolbox, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    """Whose key this is; a failure is counted against the address it comes from.

    Raises:
        UnauthenticatedError: no key, or none that is in use.
        TooManyRequestsError: too many failed within a minute.
    """
    try:
        found = _found(tools, credentials)
    except UnauthenticatedError:
        tools.limiter.count_failure(address_of(request))
        raise
    if found.use_to_note and found.caller.key_id is not None:
        with tools.database.write() as session:
            keys.note_use(session, found.caller.key_id)
    return found.caller


def _found(tools: Toolbox, credentials: HTTPAuthorizationCredentials | None) -> keys.FoundKey:
    if credentials is None:
        raise UnauthenticatedError("this request carries no API key")
    with tools.database.read() as session:
        found = keys.find_key(session, credentials.credentials)
    if found is None:
        raise UnauthenticatedError("this API key is unknown, revoked or past its time")
    return found


def count_by_address(request: Request, tools: Tools) -> None:
    """Return if the sender of a request that needs no key may send one more."""
    tools.limiter.count_request(address_of(request))


CurrentCaller = Annotated[Caller, Depends(_caller)]


def _viewer(request: Request, caller: CurrentCaller) -> Viewer:
    # Here and not at each endpoint, so that none can be forgotten.
    caller.require(scope_for(request.method))
    return Viewer(caller.key_id)


def _admin(caller: CurrentCaller) -> Caller:
    caller.require(Scope.ADMIN)
    return caller


CurrentViewer = Annotated[Viewer, Depends(_viewer)]
# For what belongs to no user: workers, for example.
CurrentAdmin = Annotated[Caller, Depends(_admin)]


def allow_metrics(
    request: Request,
    tools: Tools,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> None:
    """Return if this request may see the figures for operators."""
    if tools.settings.metrics == "anyone":
        count_by_address(request, tools)
    else:
        _caller(request, tools, credentials).require(Scope.ADMIN)


def _hub_token(
    tools: Tools,
    x_hub_token: Annotated[
        SecretStr | None,
        Header(description="A token of the Hugging Face Hub that may read the model; kept encrypted."),
    ] = None,
) -> SecretStr | None:
    if x_hub_token is None:
        return None
    tools.secrets.require_keys()
    if not HUB_TOKEN.fullmatch(x_hub_token.get_secret_value()):
        raise InvalidRequestError("this is no token of the Hub", field="X-Hub-Token")
    return x_hub_token


HubToken = Annotated[SecretStr | None, Depends(_hub_token)]
