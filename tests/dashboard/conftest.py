"""The real API with its dashboard, and a real browser to look at it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from services.artifacts.storage import ArtifactStore, open_store
from services.auth import logins
from services.auth.repository import create_key, find_key
from services.config import Settings
from services.dashboard.user import PLAIN_COOKIE
from services.db import migrate
from services.db.sessions import Database, open_database
from services.embedded import Stack
from tests.dashboard.scenes import Scene
from tests.serving import empty, made_database, serve, settings_on

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
# Machines that run these tests may be busy with others.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Served:
    """A running service with one key, whose jobs `scene` makes."""

    url: str
    key: str
    owner_id: UUID
    settings: Settings
    database: Database
    store: ArtifactStore

    @property
    def scene(self) -> Scene:
        """Makes jobs of the key."""
        return Scene(self.database, self.owner_id)

    def new_key(self, *scopes: str) -> str:
        """Another key."""
        with self.database.write() as session:
            return create_key(session, "another", scopes=scopes)

    def get(
        self, path: str, cookie: str | None = None, *, key: str | None = None, **headers: str
    ) -> httpx2.Response:
        """What the address answers to whoever holds the cookie or the key, or to anybody."""
        cookies = {} if cookie is None else {PLAIN_COOKIE: cookie}
        sent = headers if key is None else {**headers, "Authorization": f"Bearer {key}"}
        return httpx2.get(self.url + path, cookies=cookies, headers=sent, follow_redirects=False, timeout=30)

    def twin(self, path: str, key: str | None = None) -> dict[str, Any]:
        """A page's data, as the key sees it."""
        answer = self.get(path, key=key or self.key)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def cookie(self, key: str | None = None) -> str:
        """The text of a cookie that is logged in with the key."""
        with self.database.write() as session:
            found = find_key(session, key or self.key)
            assert found is not None
            assert found.caller.key_id is not None
            return logins.begin(session, found.caller.key_id, lasts_seconds=3600)


def chromium() -> str:
    """The browser's program; where there is none the test is skipped, or fails where there should be one."""
    found = os.environ.get("GHOSTED_CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is not None:
        return found
    missing = f"none of {', '.join(PROGRAMS)} is installed; `make chromium` installs one on Debian as root"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def dashboard_url(stack: Stack) -> Iterator[str]:
    """The address of a database that is the dashboard's tests' own."""
    with made_database(stack.database_url, "dashboard") as url:
        migrate.upgrade(url)
        yield url


@pytest.fixture(scope="session")
def settings(stack: Stack, dashboard_url: str) -> Settings:
    """The settings of the service."""
    return settings_on(stack, dashboard_url)


@pytest.fixture(scope="session")
def store(settings: Settings) -> ArtifactStore:
    """The bucket of the service."""
    made = open_store(settings)
    made.ensure_bucket()
    return made


@pytest.fixture(scope="session")
def opened(dashboard_url: str) -> Iterator[Database]:
    """The database, open for the whole run."""
    database = open_database(dashboard_url)
    yield database
    database.close()


@pytest.fixture
def database(opened: Database) -> Database:
    """The database, with empty tables."""
    empty(opened)
    return opened


@pytest.fixture(scope="session")
def base_url(settings: Settings, store: ArtifactStore) -> Iterator[str]:
    """The address of the running service."""
    with serve(settings, graceful_seconds=1) as url:
        yield url


@pytest.fixture
def served(base_url: str, settings: Settings, database: Database, store: ArtifactStore) -> Served:
    """The running service, with one key and nothing else."""
    with database.write() as session:
        key = create_key(session, "tests", scopes=("read", "submit", "admin"))
    with database.read() as session:
        found = find_key(session, key)
    assert found is not None
    assert found.caller.key_id is not None
    return Served(base_url, key, found.caller.key_id, settings, database, store)


# Of one file, not of the session: while it runs, no other test could start an event loop in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield launched
        launched.close()


# Opens a context of the browser, which is closed after the test; takes what `Browser.new_context` takes.
Opener = Callable[..., BrowserContext]


@pytest.fixture
def opener(browser: Browser, served: Served) -> Iterator[Opener]:
    """Opens contexts in which the key of `served` is logged in, unless `login=False`."""
    made: list[BrowserContext] = []

    def open_context(*, login: bool = True, **options: object) -> BrowserContext:
        context = browser.new_context(base_url=served.url, timezone_id="Europe/Berlin", **options)
        context.set_default_timeout(PATIENCE_MS)
        made.append(context)
        if login:
            cookie = {"name": PLAIN_COOKIE, "value": served.cookie(), "url": served.url}
            context.add_cookies([{**cookie, "httpOnly": True, "sameSite": "Lax"}])
        return context

    yield open_context
    for context in made:
        context.close()


@contextmanager
def no_complaints(page: Page) -> Iterator[None]:
    """While the block runs, no script fails, and the policy refuses nothing."""
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if "Content Security" in line.text else None)
    yield
    assert said == []


@pytest.fixture
def page(opener: Opener) -> Iterator[Page]:
    """A page of someone who is logged in; no script may fail, and no policy may be violated."""
    made = opener(viewport={"width": 1280, "height": 800}).new_page()
    with no_complaints(made):
        yield made
