"""The API: jobs in, artifacts out. It never loads a model, and never imports torch."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import Depends, FastAPI

from services import health, listed, methods, metrics, openapi, problems
from services.artifacts import endpoints as artifacts
from services.bodies import BodyGuard
from services.config import Settings
from services.jobs import endpoints as jobs
from services.parameters import check_parameters
from services.request_log import RequestLog
from services.toolbox import open_toolbox
from services.uploads import endpoints as uploads
from services.workers import endpoints as workers

VERSION = "0.1.0"
DESCRIPTION = (
    "Compression as a service for decoder language models: remove whole layers, repair the cut "
    "with a closed-form linear operator, measure what it cost, fetch a checkpoint that loads."
)


def create_app(settings: Settings) -> FastAPI:
    """The application; it opens its tools when served and closes them afterwards."""
    app = FastAPI(
        title="Ghosted",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=_lifespan(settings),
        dependencies=[Depends(check_parameters)],
        generate_unique_id_function=openapi.operation_id,
        # These pages would load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    for router in (
        jobs.router,
        artifacts.router,
        uploads.router,
        methods.router,
        listed.router,
        workers.router,
        health.router,
    ):
        app.include_router(router)
    if settings.metrics != "off":
        app.include_router(metrics.router)
    problems.install(app)
    openapi.install(app)
    app.add_middleware(BodyGuard, max_bytes=settings.max_body_bytes)
    # Last, which is outermost: what the guard refuses has an id and a line too.
    app.add_middleware(RequestLog)
    return app


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with open_toolbox(settings) as tools:
            app.state.toolbox = tools
            yield

    return lifespan
