"""/healthz: the process lives. /readyz: the parts that it stands on answer."""

import logging
from collections.abc import Callable, Mapping
from typing import Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from ghosted_core.errors import GhostedError
from services.db import migrate
from services.dependencies import Tools, count_by_address
from services.errors import UnavailableError
from services.toolbox import Toolbox

TIMEOUT_SECONDS = 2

logger = logging.getLogger(__name__)
router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The process lives."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """What was asked, and what it said."""

    model_config = ConfigDict(frozen=True)

    ready: bool
    parts: dict[str, str] = Field(description="For each part `ok`, or what is wrong with it.")


@router.get("/healthz")
async def health() -> Health:  # Not in a thread: all of them may be waiting for others.
    """The process lives. Asks nobody else."""
    return Health()


@router.get(
    "/readyz",
    responses={503: {"model": Readiness, "description": "A part does not answer"}},
    dependencies=[Depends(count_by_address)],
)
def readiness(tools: Tools, response: Response) -> Readiness:
    """Whether database, schema, broker and object store answer."""
    parts = {name: _ask(name, check, tools) for name, check in CHECKS.items()}
    ready = all(said == "ok" for said in parts.values())
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, parts=parts)


def _ask(name: str, check: Callable[[Toolbox], None], tools: Toolbox) -> str:
    try:
        check(tools)
    except (SQLAlchemyError, RedisError, GhostedError) as error:
        # Anyone may read the answer: addresses and statements stay in the log.
        logger.warning("%s is not ready", name, exc_info=error)
        return error.message if isinstance(error, UnavailableError) else type(error).__name__
    return "ok"


def _check_database(tools: Toolbox) -> None:
    with tools.database.engine.connect() as connection:
        at = migrate.current(connection)
    if at != migrate.head():
        raise UnavailableError(f"the schema is at revision {at}, not {migrate.head()}")


def _check_broker(tools: Toolbox) -> None:
    url = tools.settings.redis_url.get_secret_value()
    with Redis.from_url(
        url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    ) as client:
        client.ping()


def _check_store(tools: Toolbox) -> None:
    tools.store.check()


CHECKS: Mapping[str, Callable[[Toolbox], None]] = {
    "database": _check_database,
    "broker": _check_broker,
    "object_store": _check_store,
}
