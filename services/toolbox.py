"""What one process builds once and every request is handed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ghosted_core.catalog import Catalog
from ghosted_core.registry import read_registry
from services.artifacts.connection import PROMPT
from services.artifacts.storage import ArtifactStore, open_store
from services.config import Settings
from services.db.sessions import Database, open_database
from services.limits import Limiter
from services.pinning import HubDesk
from services.sealing import SecretBox
from services.telemetry import Tracing, open_tracing


@dataclass(frozen=True)
class Toolbox:
    """Settings, database, object store, catalog, limits, traces, and what knows the Hub and its tokens."""

    settings: Settings
    database: Database
    store: ArtifactStore
    # The same, for what an answer can do without.
    prompt_store: ArtifactStore
    catalog: Catalog
    limiter: Limiter
    secrets: SecretBox
    hub: HubDesk
    tracing: Tracing


@contextmanager
def open_toolbox(settings: Settings) -> Iterator[Toolbox]:
    """The tools of `settings`; nothing connects before it is used, and all is closed afterwards.

    Raises:
        InvalidCatalogError: the operator's aliases cannot be used.
    """
    catalog = read_registry(settings.catalog).catalog()
    database = open_database(settings.database_url.get_secret_value())
    tracing = open_tracing(settings.otlp_endpoint, "ghosted-api")
    try:
        yield Toolbox(
            settings,
            database,
            open_store(settings),
            open_store(settings, PROMPT),
            catalog,
            Limiter(settings),
            SecretBox.of(settings.secret_key),
            HubDesk(enabled=settings.resolve_models),
            tracing,
        )
    finally:
        tracing.close()
        database.close()
