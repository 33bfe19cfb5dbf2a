"""The page of a job that a real worker runs, and of its result."""

import hashlib
import re
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from services.jobs import repository
from services.jobs.viewer import Viewer
from tests.dashboard.conftest import Served
from tests.dashboard.working import Working, working

JOB_SECONDS = 300
SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  const name = (source) => `${source.node?.parentElement?.id} ${source.node?.id} ${source.node?.className}`;
  for (const entry of list.getEntries()) {
    if (!entry.hadRecentInput) window.shifts.push([entry.value, entry.sources.map(name)]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture
def worker(served: Served, tmp_path: Path, tiny_folder: Path, text_file: Path) -> Working:
    return working(served, tmp_path, tiny_folder, text_file)


def stored_hash(served: Served, job_id: UUID, path: str) -> str:
    with served.database.read() as session:
        _, artifact = repository.get_with_artifact(session, Viewer(served.owner_id), job_id)
    assert artifact is not None
    return next(file["sha256"] for file in artifact.manifest["files"] if file["path"] == path)


def test_a_real_job_is_watched_from_the_queue_to_its_files(worker: Working, page: Page) -> None:
    """Without a reload: queued, running, succeeded, with all that came of it; nothing jumps.

    A file that is fetched through its link has the hash that the page says.
    """
    job_id = worker.submit()
    page.add_init_script(SHIFTS)
    page.goto(f"/jobs/{job_id}")
    state = page.locator("#now .badge")
    expect(state).to_have_text("queued")
    expect(page.locator("#now")).to_contain_text("no live worker")
    page.evaluate("window.untouched = true")
    with worker.running(job_id):
        expect(state).to_have_text("running", timeout=1000 * JOB_SECONDS)
        expect(state).to_have_text("succeeded", timeout=1000 * JOB_SECONDS)
    assert page.evaluate("window.untouched") is True
    expect(page.locator("#timeline tr.done")).to_have_count(9)
    expect(page.locator("#layers .layer.removed")).to_have_count(2)
    expect(page.locator("#quality tbody tr").first).to_contain_text("perplexity")
    expect(page.locator("section[aria-labelledby=repairs-title] tbody tr")).to_have_count(2)
    expect(page.locator("#continuations h3").first).to_have_text("The fox")
    expect(page.locator("#log")).to_contain_text("removing layers")
    # What counts as good is 0.1; a row that appears far below may touch the window's edge.
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, _ in shifts) < 0.005, shifts
    check_download(worker.served, page, job_id)


def check_download(served: Served, page: Page, job_id: UUID) -> None:
    row = page.locator("#files tbody tr", has=page.get_by_role("link", name="config.json", exact=True))
    with page.expect_download() as caught:
        row.get_by_role("link").click()
    assert caught.value.suggested_filename == "config.json"
    digest = hashlib.sha256(Path(caught.value.path()).read_bytes()).hexdigest()
    expect(row.locator(".sha")).to_have_text(digest)
    assert digest == stored_hash(served, job_id, "config.json")


def test_a_job_is_cancelled_from_its_page(served: Served, page: Page) -> None:
    """The button ends a job that waits; afterwards the page offers to delete it instead."""
    job_id = served.scene.queued()
    page.goto(f"/jobs/{job_id}")
    page.get_by_role("button", name="Cancel").click()
    expect(page).to_have_url(f"{served.url}/jobs/{job_id}")
    expect(page.locator("#now .badge")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.get_by_role("link", name="Delete")).to_be_visible()


def test_a_job_is_deleted_after_a_confirmation(served: Served, page: Page) -> None:
    """One click asks, the second one deletes: the address is nobody's afterwards."""
    fence = served.scene.running()
    served.scene.fail(fence)
    page.goto(f"/jobs/{fence.job_id}")
    page.get_by_role("link", name="Delete").click()
    expect(page.locator("main")).to_contain_text("Delete this job?")
    page.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(f"{served.url}/jobs")
    assert page.goto(f"/jobs/{fence.job_id}").status == 404  # type: ignore[union-attr]


def test_who_reads_an_open_page_is_not_disturbed(served: Served, page: Page) -> None:
    """Title and word for screen readers follow the job; what was opened stays open, the log in its place."""
    fence = served.scene.running()
    served.scene.stage(fence, "score", 10)
    for index in range(60):
        served.scene.log(fence, f"line {index}")
    served.scene.measure(fence, kl_pruned=0.5)
    page.goto(f"/jobs/{fence.job_id}")
    expect(page).to_have_title(re.compile("^running"))
    page.locator("#more-figures summary").click()
    page.evaluate("document.getElementById('log').scrollTop = 120")
    served.scene.measure(fence, kl_repaired=0.25)
    served.scene.log(fence, "the last line")
    expect(page.locator("#quality")).to_contain_text("0.250")
    expect(page.locator("#log")).to_contain_text("the last line")
    expect(page.locator("#more-figures")).to_have_attribute("open", "")
    assert page.evaluate("document.getElementById('log').scrollTop") == 120
    served.scene.fail(fence)
    expect(page).to_have_title(re.compile("^failed"))
    expect(page.get_by_role("status").locator("#state")).to_have_text("failed")


def test_a_running_job_that_is_to_stop_says_so(served: Served, page: Page) -> None:
    """Until its worker obeys, the page says that it is being cancelled."""
    fence = served.scene.running()
    served.scene.stage(fence, "score", 10)
    page.goto(f"/jobs/{fence.job_id}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#now")).to_contain_text("cancelling")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
