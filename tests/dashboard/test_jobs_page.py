"""The list of jobs, as people see it."""

import re
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

from playwright.sync_api import Page, expect
from sqlalchemy import update
from starlette.requests import Request

from ghosted_core.catalog import builtin_catalog
from ghosted_core.spec import JobSpec
from services.auth.scopes import Caller
from services.dashboard.jobs_page import jobs_page
from services.dashboard.user import User
from services.db.models import Job
from services.db.sessions import Database
from tests.dashboard.conftest import Opener, Served, no_complaints
from tests.dashboard.counting import counted
from tests.dashboard.scenes import MODEL, OUT_OF_MEMORY, beat, furnish
from tests.integration.services.crowd import fill
from tests.serving import serve

HOSTILE = "<img src=x onerror=\"document.title='had'\">"


def row(page: Page, job_id: object) -> Any:
    return page.locator(f"#job-{job_id}")


def crowd(served: Served, count: int) -> None:
    """The key has so many jobs more, whole ones."""
    fill(served.database, served.owner_id, count)
    spec = JobSpec.model_validate({"model": "owner/tiny", "layers": 2}).model_dump(mode="json")
    with served.database.write() as session:
        session.execute(update(Job).values(spec=spec))


def test_an_empty_list_says_what_to_do(page: Page) -> None:
    """Who has no jobs yet is led to a first one."""
    page.goto("/jobs")
    page.get_by_role("link", name="Try it on a small model").click()
    expect(page.locator("#model")).to_have_value(MODEL)


def test_a_row_tells_how_the_job_stands(page: Page, served: Served) -> None:
    """State, model, layers, perplexities, stage, place in the queue, failure code and last seen are there."""
    found = furnish(served.database, served.owner_id)
    page.goto("/jobs")
    expect(row(page, found["succeeded"])).to_contain_text("succeeded")
    expect(row(page, found["succeeded"])).to_contain_text("5 of 30")
    for value in ("18.42", "61.07", "27.35"):
        expect(row(page, found["succeeded"])).to_contain_text(value)
    expect(row(page, found["succeeded"]).locator(".end").nth(0)).to_contain_text("12 s")
    expect(row(page, found["succeeded"]).locator(".end").nth(1)).to_contain_text("2 min 43 s")
    expect(row(page, found["running"])).to_contain_text("evaluate 42 %")
    expect(row(page, found["running"])).to_contain_text("left")
    expect(row(page, found["queued"])).to_contain_text("next in the queue")
    expect(row(page, found["next"])).to_contain_text("1 before it")
    expect(row(page, found["failed"])).to_contain_text(OUT_OF_MEMORY.code)
    expect(row(page, found["stale"]).locator(".stale")).to_contain_text("ago")
    expect(row(page, found["running"]).locator(".stale")).to_have_count(0)


def test_filters_stand_in_the_address(page: Page, served: Served) -> None:
    """What is chosen is in the address, and only what fits is shown; a label is a link to its like."""
    found = furnish(served.database, served.owner_id)
    page.goto("/jobs")
    page.select_option("select[name=state]", "failed")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**state=failed**")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(row(page, found["failed"])).to_be_visible()
    page.get_by_role("link", name="team=chat").click()
    expect(page.locator("#rows tr")).to_have_count(2)
    page.goto("/jobs?label=nonsense")
    expect(page.get_by_role("alert")).to_contain_text("name=text")


def test_a_job_is_followed_without_reloading(page: Page, served: Served) -> None:
    """State and progress change by themselves, in place: nothing around them moves."""
    beat(served.database)
    below = served.scene.queued()
    fence = served.scene.running()
    page.goto("/jobs")
    page.evaluate("window.untouched = true")
    before = row(page, below).bounding_box()
    served.scene.stage(fence, "score", 16_384)
    expect(row(page, fence.job_id)).to_contain_text("score 25 %")
    served.scene.progress(fence, "score", 49_152)
    expect(row(page, fence.job_id)).to_contain_text("score 75 %")
    perplexity = {"perplexity_dense": 18.0, "perplexity_pruned": 60.0, "perplexity_repaired": 27.0}
    served.scene.succeed(fence, range(20, 25), perplexity)
    expect(row(page, fence.job_id)).to_contain_text("succeeded")
    expect(row(page, fence.job_id)).to_contain_text("1.50")
    assert row(page, below).bounding_box() == before
    fresh = served.scene.queued()
    expect(page.locator("#rows tr").first).to_have_id(f"job-{fresh}")
    expect(page.locator("#active")).to_have_text("0 running, 2 waiting")
    assert page.evaluate("window.untouched")


def test_focus_stays_where_it_was(page: Page, served: Served) -> None:
    """Whoever has a row's link under the keyboard keeps it when the row changes."""
    fence = served.scene.running()
    page.goto("/jobs")
    page.locator(f"#link-{fence.job_id}").focus()
    served.scene.stage(fence, "score", 16_384)
    expect(row(page, fence.job_id)).to_contain_text("score 25 %")
    expect(page.locator(f"#link-{fence.job_id}")).to_be_focused()


def test_jobs_are_picked_for_comparison_with_the_keyboard(page: Page, served: Served) -> None:
    """A box that is ticked stays so, and under the keyboard, while its row changes."""
    fence, other = served.scene.running(), served.scene.queued()
    page.goto("/jobs")
    box = page.locator(f"#pick-{fence.job_id}")
    box.focus()
    page.keyboard.press("Space")
    served.scene.stage(fence, "score", 16_384)
    expect(row(page, fence.job_id)).to_contain_text("score 25 %")
    expect(box).to_be_checked()
    expect(box).to_be_focused()
    page.locator(f"#pick-{other}").focus()
    page.keyboard.press("Space")
    page.locator("#compare").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?*")
    assert set(parse_qs(urlsplit(page.url).query)["job"]) == {str(fence.job_id), str(other)}


def test_jobs_are_picked_for_comparison_on_a_phone(opener: Opener, served: Served) -> None:
    """Without scripts too; as soon as one is ticked the button is in view, however long the list."""
    furnish(served.database, served.owner_id)
    page = opener(viewport={"width": 360, "height": 740}, java_script_enabled=False).new_page()
    page.goto("/jobs")
    expect(page.locator("#compare")).not_to_be_in_viewport()
    page.locator("#rows input").first.check()
    expect(page.locator("#compare")).to_be_in_viewport()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("h1")).to_have_text("Compare")
    expect(page.locator(".compared th[scope=col]")).to_have_count(1)


def test_a_server_that_was_away(opener: Opener, served: Served) -> None:
    """The open page says that the service is away, and goes on by itself when it is back."""
    fence = served.scene.running()
    page = opener().new_page()
    with serve(served.settings, graceful_seconds=1) as url:
        page.goto(f"{url}/jobs")
        expect(row(page, fence.job_id)).to_contain_text("starting")
    expect(page.locator("#notice")).to_contain_text("does not answer")
    served.scene.stage(fence, "score", 16_384)
    port = int(url.rsplit(":", 1)[1])
    with serve(served.settings.model_copy(update={"api_port": port}), graceful_seconds=1):
        expect(row(page, fence.job_id)).to_contain_text("score 25 %")
        expect(page.locator("#notice")).to_be_empty()
        page.close()


def test_without_javascript(opener: Opener, served: Served) -> None:
    """The list, its filters and its times can be read; times are in UTC then."""
    found = furnish(served.database, served.owner_id)
    page = opener(java_script_enabled=False).new_page()
    page.goto("/jobs")
    expect(row(page, found["running"]).locator("td").last).to_contain_text("UTC")
    page.select_option("select[name=state]", "queued")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#rows tr")).to_have_count(2)


def test_times_are_those_of_the_viewers_zone(page: Page, served: Served) -> None:
    """A browser in Berlin shows when the job was submitted there."""
    job_id = served.scene.queued()
    with served.database.read() as session:
        created = session.get_one(Job, job_id).created_at.astimezone(ZoneInfo("Europe/Berlin"))
    page.goto("/jobs")
    told = row(page, job_id).locator("td").last.locator("time")
    expect(told).to_have_attribute("title", re.compile(created.strftime("%I:%M:%S")))


def test_hostile_names_are_text(opener: Opener, served: Served) -> None:
    """Whatever is in a model's name, a label or a failure's words is shown as it is and does nothing."""
    fence = served.scene.running({"strategy": "shortgpt"}, team=HOSTILE)
    failure = {**OUT_OF_MEMORY.to_json(), "message": HOSTILE, "code": HOSTILE}
    served.scene.fail(fence)
    spec = {"model": {"kind": "hub", "id": HOSTILE, "revision": '"><script>'}, "layers": HOSTILE}
    with served.database.write() as session:
        job = session.get_one(Job, fence.job_id)
        changed = {"failure": failure, "spec": {**job.spec, **spec}}
        session.execute(update(Job).where(Job.id == fence.job_id).values(changed))
    page = opener().new_page()
    with no_complaints(page):
        for path in ("/jobs", f"/jobs/{fence.job_id}/delete", f"/submit?model={HOSTILE}&layers={HOSTILE}"):
            page.goto(path)
            page.wait_for_load_state("networkidle")
            assert page.locator("img").count() == 0
            assert "Ghosted" in page.title()
        page.goto("/jobs")
        expect(page.locator("#rows")).to_contain_text(f"team={HOSTILE}")


def test_the_number_of_queries_is_constant(served: Served) -> None:
    """A page of fifty jobs of many takes the statements that a page of one takes."""
    served.scene.queued()
    few = _statements(served, served.database)
    crowd(served, 500)
    furnish(served.database, served.owner_id)
    many = _statements(served, served.database)
    # One more at most, for jobs that began more than once.
    assert len(many) <= len(few) + 1 <= 9


def _statements(served: Served, database: Database) -> list[str]:
    scope = {"type": "http", "method": "GET", "path": "/jobs", "query_string": b"", "headers": []}
    user = User(Caller(served.owner_id, frozenset({"read"})), "tests")
    tools = cast("Any", SimpleNamespace(catalog=builtin_catalog(), settings=served.settings))
    with counted(database) as said, database.read() as session:
        jobs_page(Request(scope), session, user, tools)
    return said


def test_five_hundred_jobs(page: Page, served: Served) -> None:
    """All of them are found by going from page to page, each once."""
    crowd(served, 500)
    page.goto("/jobs")
    expect(page.locator("#rows tr")).to_have_count(50)
    expect(page.get_by_role("link", name="Older")).to_be_visible()
    seen: list[str] = []
    path = "/jobs"
    while path:
        shown = served.twin(path.replace("/jobs", "/jobs.json", 1))
        seen += [one["id"] for one in shown["rows"]]
        path = shown["older"]
    assert len(seen) == len(set(seen)) == 500


def test_what_did_not_change_is_not_sent_again(served: Served) -> None:
    """A page that is asked for with its tag is answered 304 while its data are the same."""
    served.scene.queued()
    cookie = served.cookie()
    held = {"If-None-Match": served.get("/jobs", cookie).headers["ETag"]}
    assert served.get("/jobs", cookie, **held).status_code == 304
    served.scene.queued()
    assert served.get("/jobs", cookie, **held).status_code == 200
