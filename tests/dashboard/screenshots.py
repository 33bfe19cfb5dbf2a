"""Pictures of the dashboard: `python -m tests.dashboard.screenshots FOLDER`.

A service is started on embedded parts, with jobs as on an afternoon; every page is taken light and
dark, wide and narrow. Says of each page what it weighs and when it was first painted.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from playwright.sync_api import BrowserContext, sync_playwright

from services.artifacts.storage import open_store
from services.auth import logins
from services.auth.repository import create_key, find_key
from services.config import Settings
from services.dashboard.user import PLAIN_COOKIE
from services.db import migrate
from services.db.sessions import Database, open_database
from services.embedded import Stack, remove_stack
from tests.dashboard.conftest import FLAGS, chromium
from tests.dashboard.results import finished
from tests.dashboard.scenes import MODEL, Scene, freshen, furnish
from tests.serving import made_database, serve, settings_on

FOLDER = Path("docs") / "screenshots"
WIDTHS = {"wide": 1280, "narrow": 360}
SCHEMES = ("light", "dark")
MEASURE = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const loaded = [page, ...performance.getEntriesByType("resource")];
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  const sum = (name) => loaded.reduce((total, one) => total + one[name], 0);
  return { html: page.encodedBodySize, all: sum("encodedBodySize"), paint: paint?.startTime ?? 0 };
}"""

DRAWN = """() => [...document.querySelectorAll("[data-chart]")].every((chart) =>
  chart.getBoundingClientRect().top > innerHeight || chart.matches(".js-plotly-plot, :has(.main-svg)"))"""


def pages(jobs: Mapping[str, UUID]) -> dict[str, str]:
    """Every page by its picture's name."""
    compared = "?" + "&".join(f"job={jobs[name]}" for name in ("succeeded", "shortgpt", "mild", "plain"))
    return {
        "login": "/login",
        "jobs": "/jobs",
        "job": f"/jobs/{jobs['succeeded']}",
        "job-running": f"/jobs/{jobs['running']}",
        "job-failed": f"/jobs/{jobs['failed']}",
        "submit": f"/submit?model={MODEL}&layers=25%25&strategy=reverse",
        "compare": f"/compare{compared}",
        "system": "/system",
    }


def main() -> None:
    """Take all pictures."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "data"
        with Stack.start(data) as stack, made_database(stack.database_url, "pictures") as url:
            migrate.upgrade(url)
            settings = settings_on(stack, url)
            open_store(settings).ensure_bucket()
            database = open_database(url)
            _take_all(settings, database, target)
            database.close()
        remove_stack(data)


def _take_all(settings: Settings, database: Database, target: Path) -> None:
    cookie, owner_id = _logged_in(database)
    with tempfile.TemporaryDirectory() as folder:
        made = finished(Scene(database, owner_id), open_store(settings), Path(folder))
    jobs = {**furnish(database, owner_id), **made}
    with serve(settings, graceful_seconds=1) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for scheme in SCHEMES:
            context: BrowserContext = browser.new_context(base_url=url, color_scheme=scheme)
            for name, path in pages(jobs).items():
                context.clear_cookies()
                if name != "login":
                    context.add_cookies([{"name": PLAIN_COOKIE, "value": cookie, "url": url}])
                freshen(database, jobs)
                _take(context, name, path, scheme, target)
            context.close()
        browser.close()


def _take(context: BrowserContext, name: str, path: str, scheme: str, target: Path) -> None:
    page = context.new_page()
    for size, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(path)
        page.wait_for_load_state("networkidle")
        measured = page.evaluate(MEASURE)
        if size == "narrow":
            # All of it is in view then, and so drawn.
            page.set_viewport_size({"width": width, "height": page.evaluate("document.body.scrollHeight")})
        page.wait_for_function(DRAWN)
        page.screenshot(path=target / f"{name}-{size}-{scheme}.png")
        weight = f"{measured['html'] / 1024:.1f} KiB of HTML, {measured['all'] / 1024:.1f} KiB in all"
        print(f"{name} {size} {scheme}: {weight}, painted after {measured['paint']:.0f} ms")  # noqa: T201
    page.close()


def _logged_in(database: Database) -> tuple[str, UUID]:
    with database.write() as session:
        key = create_key(session, "afternoon", scopes=("read", "submit", "admin"))
        found = find_key(session, key)
        if found is None or found.caller.key_id is None:
            raise LookupError("the key that was just made")
        token = logins.begin(session, found.caller.key_id, lasts_seconds=3600)
        return token, found.caller.key_id


if __name__ == "__main__":
    main()
