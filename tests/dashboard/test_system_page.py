"""Workers, queue and failures, as an operator and as anybody else sees them."""

from dataclasses import fields
from datetime import timedelta

from playwright.sync_api import Page, expect

from services.auth.scopes import Caller
from services.dashboard.system_page import SystemPage, system_page
from services.dashboard.user import User
from services.toolbox import open_toolbox
from tests.dashboard.axe import violations
from tests.dashboard.conftest import Opener, Served
from tests.dashboard.counting import counted
from tests.dashboard.scenes import beat, furnish


def test_an_operator_sees_all_of_it(served: Served, page: Page) -> None:
    """How many wait and run, what each worker is and does, what failed lately."""
    furnish(served.database, served.owner_id)
    page.goto("/system")
    expect(page.locator("#queue dd").nth(0)).to_have_text("2")
    expect(page.locator("#queue dd").nth(2)).to_have_text("2")
    expect(page.locator("#queue [data-since]")).to_contain_text("4 min")
    expect(page.locator(".worker")).to_have_count(2)
    expect(page.locator(".worker").first).to_contain_text("NVIDIA L4")
    expect(page.locator(".worker").first.get_by_role("link")).to_have_text("smollm2-135m-instruct")
    expect(page.locator("#failures tbody tr")).to_contain_text("out_of_memory")


def test_it_follows_what_happens(served: Served, page: Page) -> None:
    """A worker that comes and a job that fails appear without a reload."""
    page.goto("/system")
    expect(page.locator("#queue")).to_contain_text("none is there")
    expect(page.locator("#failures")).to_contain_text("No job failed")
    beat(served.database)
    served.scene.fail(served.scene.running())
    expect(page.locator("#queue")).not_to_contain_text("none is there")
    expect(page.locator("#failures tbody tr")).to_have_count(1)


def test_failures_are_counted_by_code_and_age(served: Served) -> None:
    """Of the last 24 hours, of the last 7 days; older ones not at all."""
    for days in (0, 0.5, 3, 8):
        fence = served.scene.running()
        served.scene.fail(fence)
        served.scene.shift(fence.job_id, finished_at=timedelta(days=days))
    assert served.twin("/system.json")["failures"] == [{"code": "out_of_memory", "day": 2, "week": 3}]


def test_a_key_of_no_operator_sees_its_own_numbers_alone(served: Served) -> None:
    """No worker's name, no figure and no id of other people's jobs."""
    jobs = furnish(served.database, served.owner_id)
    key = served.new_key("read", "submit")
    document = served.twin("/system.json", key)
    assert set(document) == {field.name for field in fields(SystemPage)}
    assert (document["queue"]["queued"], document["queue"]["running"]) == (0, 0)
    assert (document["workers"], document["failures"]) == (None, [])
    assert document["live_workers"] == 2
    assert not any(str(job_id) in str(document) for job_id in jobs.values())


def test_an_operator_is_not_shown_whose_jobs_workers_run(served: Served) -> None:
    """That a worker is busy, and in what stage, but neither the job nor its model."""
    jobs = furnish(served.database, served.owner_id)
    document = served.twin("/system.json", served.new_key("read", "admin"))
    busy = [line for line in document["workers"] if line["worker"]["busy"]]
    assert [(line["job_id"], line["model"]) for line in busy] == [(None, None)]
    assert busy[0]["stage"] is not None
    assert document["queue"]["queued"] == 2
    assert not any(str(job_id) in str(document) for job_id in jobs.values())


def test_the_number_of_queries_does_not_grow(served: Served) -> None:
    """With ten times the jobs and workers the page costs as many statements."""
    user = User(Caller(served.owner_id, frozenset({"read", "admin"})), "tests")
    numbers = []
    with open_toolbox(served.settings) as tools:
        for count in (1, 10):
            for index in range(count):
                beat(served.database, f"host-{count}:{index}:x")
                served.scene.fail(served.scene.running())
                served.scene.queued()
            with counted(tools.database) as sent, tools.database.read() as session:
                system_page(session, user, tools)
            numbers.append(len(sent))
    assert numbers[0] == numbers[1] <= 8


def test_axe_finds_nothing(served: Served, opener: Opener) -> None:
    """By day and by night, on a phone and on a desk; also where there is nothing yet."""
    empty = violations(opener, "/system")
    furnish(served.database, served.owner_id)
    assert empty + violations(opener, "/system") == []
