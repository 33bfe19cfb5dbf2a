"""What one process builds once and every request is handed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ghosted_core.catalog import Catalog, builtin_catalog
from services.artifacts.storage import ArtifactStore, open_store
from services.config import Settings
from services.db.sessions import Database, open_database
from services.hub import HubDesk
from services.limits import Limiter
from services.sealing import SecretBox


@dataclass(frozen=True)
class Toolbox:
    """Settings, database, object store, catalog, limits, and what deals with the Hub and its tokens."""

    settings: Settings
    database: Database
    store: ArtifactStore
    catalog: Catalog
    limiter: Limiter
    secrets: SecretBox
    hub: HubDesk


@contextmanager
def open_toolbox(settings: Settings) -> Iterator[Toolbox]:
    """The tools of `settings`; nothing connects before it is used, and all is closed afterwards."""
    database = open_database(settings.database_url.get_secret_value())
    try:
        yield Toolbox(
            settings,
            database,
            open_store(settings),
            builtin_catalog(),
            Limiter(settings),
            SecretBox.of(settings.secret_key),
            HubDesk(enabled=settings.resolve_models),
        )
    finally:
        database.close()
