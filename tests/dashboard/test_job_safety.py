"""What stands in a job's texts does nothing, and nobody else sees the job."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from services.dashboard.report_file import ReportShelf
from services.jobs import attempts, repository
from services.jobs.viewer import Viewer
from tests.dashboard.conftest import Served
from tests.dashboard.results import Result, stored, succeeded, work_through
from tests.dashboard.scenes import OUT_OF_MEMORY

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=2>{{ 7*7 }}'\"\u202e"


def hostile_job(served: Served, folder: Path) -> Any:
    """A job in whose every text stands what a model's author, a user or a worker may say at worst."""
    result = Result(
        text={"dataset": HOSTILE, "windows": 2, "length": 8, "fingerprint": HOSTILE},
        texts=dict.fromkeys(("dense", "pruned", "repaired"), HOSTILE),
        prompts=(HOSTILE,),
        meaning=HOSTILE,
    )
    fence = served.scene.running({"model": {"kind": "local", "path": HOSTILE}}, note=HOSTILE)
    work_through(served.scene, fence, result)
    with served.database.write() as session:
        attempts.record_event(session, fence, "log", {"level": "warning", "message": HOSTILE})
        attempts.record_metric(session, fence, f"{HOSTILE}_dense", 1.0, {"task": HOSTILE})
        attempts.finish_succeeded(session, fence, stored(served.store, folder, fence, result))
    return fence.job_id


def test_hostile_texts_are_texts(served: Served, page: Page, tmp_path: Path) -> None:
    """Nothing of them runs or becomes an element, on the page, in its tips and in its charts."""
    job_id = hostile_job(served, tmp_path)
    for path in (f"/jobs/{job_id}", f"/compare?job={job_id}", "/compare"):
        page.goto(path)
        for plot in page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            expect(plot).to_have_attribute("data-drawn", "yes")
        assert page.evaluate("window.hit") is None
        assert page.locator("img").count() == 0
        assert page.content().count("49") == page.content().replace("{{ 7*7 }}", "").count("49")
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("#continuations p").first).to_have_text(HOSTILE)
    expect(page.locator("#log")).to_contain_text(HOSTILE)


def test_hostile_failures_are_texts(served: Served, page: Page) -> None:
    """Message and advice of a failure are no markup either."""
    fence = served.scene.running()
    served.scene.fail(fence, replace(OUT_OF_MEMORY, message=HOSTILE, advice=HOSTILE, stage=HOSTILE[:60]))
    page.goto(f"/jobs/{fence.job_id}")
    expect(page.locator("#failure .advice")).to_contain_text(HOSTILE)
    assert page.evaluate("window.hit") is None


def test_other_peoples_jobs_are_not_there(served: Served, tmp_path: Path) -> None:
    """404 for the page, its data, its files and comparisons, as for a job that nobody has."""
    job_id = succeeded(served.scene, served.store, tmp_path, Result())
    other = served.new_key("read", "submit", "admin")
    for one in (job_id, uuid4()):
        for path in (f"/jobs/{one}.json", f"/compare.json?job={one}"):
            answer = served.get(path, key=other)
            assert answer.status_code == 404, path
            assert answer.json()["code"] == "job_not_found"
    cookie = served.cookie(other)
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/files/config.json", f"/compare?job={job_id}"):
        assert served.get(path, cookie).status_code == 404, path


def test_a_report_is_believed_only_if_it_is_the_one_that_was_stored(served: Served, tmp_path: Path) -> None:
    """Other bytes, or too many, are as none; the right ones are read once."""
    job_id = succeeded(served.scene, served.store, tmp_path, Result())
    with served.database.read() as session:
        _, artifact = repository.get_with_artifact(session, Viewer(served.owner_id), job_id)
    assert artifact is not None
    good = ReportShelf(served.store)
    assert len(good.report(artifact).fits) == 1  # type: ignore[union-attr]
    (tmp_path / "other.json").write_text(json.dumps({"fits": []}))
    served.store.upload(tmp_path / "other.json", f"{artifact.prefix}report.json")
    assert ReportShelf(served.store).report(artifact) is None
    assert good.report(artifact) is not None
    (tmp_path / "other.json").write_bytes(b"x" * (9 << 20))
    served.store.upload(tmp_path / "other.json", f"{artifact.prefix}report.json")
    assert ReportShelf(served.store).report(artifact) is None


def test_a_link_that_a_page_gives_is_a_line_in_the_log(
    served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose key got it, to which file of which job; as for a link that the API gives."""
    job_id = succeeded(served.scene, served.store, tmp_path, Result())
    caplog.set_level(logging.INFO)
    answer = served.get(f"/jobs/{job_id}/files/config.json", served.cookie())
    assert answer.status_code == 307
    (told,) = [vars(record)["fields"] for record in caplog.records if record.message == "link given"]
    assert (told["key_prefix"], told["file"]) == (served.key.split("_")[1], "config.json")
    assert answer.headers["Location"] not in caplog.text
