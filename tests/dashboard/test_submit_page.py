"""The form for a job."""

import json
import threading
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import httpx2
import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

from ghosted_core.spec import RECOVERIES, STRATEGIES, JobSpec
from services.auth.scopes import ANYONE
from services.dashboard.submission import METHODS, SECTIONS, settings_of, submission_of, values_of
from services.dashboard.submit_page import FREE
from services.dashboard.user import PLAIN_COOKIE, User
from services.db.models import Job
from services.examples import SUBMISSIONS
from services.jobs.submissions import JobSubmission
from tests.dashboard.conftest import Opener, Served
from tests.dashboard.scenes import MODEL

RICH = {
    "model": "Qwen/Qwen3-0.6B@main",
    "layers": "12.5%",
    "strategy": {"name": "taylor", "protect": False, "sequences": 3},
    "recovery": {"name": "ghosted", "ridge": "auto", "weighting": "skip_first"},
    "calibration": {"sequences": 64, "seed": 7},
    "evaluation": {
        "windows": 4,
        "corpora": ["wikitext2", {"name": "c4", "windows": "all"}],
        "tasks": ["arc_easy", {"name": "hellaswag", "limit": 20}],
        "prompts": ["One", "Two"],
        "gate": [{"metric": "perplexity", "max_ratio": 2.0}],
        "on_miss": "keep",
        "latency": {"rounds": 2},
    },
    "finetune": {"trainable": "operator+down_proj", "epochs": 2, "dataset": "c4-train"},
    "dtype": "float32",
}
SPECS = {**{name: one["value"] for name, one in SUBMISSIONS.items()}, "rich": RICH}


def jobs(served: Served) -> list[Job]:
    with served.database.read() as session:
        return list(session.scalars(select(Job).order_by(Job.id)))


def test_submit_from_the_form(page: Page, served: Served) -> None:
    """What is filled in is what is queued, and one is led to the job."""
    page.goto("/submit")
    page.fill("#model", MODEL)
    page.fill("#layers", "20%")
    page.select_option("#strategy", "taylor")
    page.locator('[id="strategy.sequences"]').fill("7")
    page.select_option("#recovery", "prune_and_comp")
    page.fill("#labels", "team=search\nrun=1")
    expect(page.locator("#foreseen")).to_contain_text("6 of 30 layers go")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/*-*")
    [job] = jobs(served)
    asked = {
        "model": MODEL,
        "layers": "20%",
        "strategy": {"name": "taylor", "sequences": 7},
        "recovery": "prune_and_comp",
    }
    assert job.spec_digest == JobSpec.model_validate(asked).digest()
    assert job.labels == {"team": "search", "run": "1"}
    assert page.url.endswith(str(job.id))


def test_the_form_is_checked_as_one_types(page: Page, served: Served) -> None:
    """What is wrong is said beside its field; what would come of it, as soon as it is right."""
    page.goto(f"/submit?model={MODEL}&layers=5&strategy=reverse")
    expect(page.locator(".strip .gone")).to_have_count(5)
    page.fill("#layers", "31")
    expect(page.locator("#flaw-layers")).to_contain_text("the model has only 30 layers")
    page.fill("#layers", "many")
    expect(page.locator("#flaw-layers")).to_contain_text("Neither a number")
    expect(page.locator("#layers")).to_have_attribute("aria-invalid", "true")
    page.fill("#layers", "16")
    expect(page.locator(".strip .gone")).to_have_count(16)
    expect(page.locator("#flaw-layers")).to_be_empty()
    expect(page.locator("#foreseen .note").first).to_contain_text("16 of 30 layers go")
    assert jobs(served) == []


def test_a_link_fills_the_form_in(opener: Opener, served: Served) -> None:
    """Every field can be named in the address, also those of a method, and without JavaScript."""
    page = opener(java_script_enabled=False).new_page()
    page.goto(
        f"/submit?model={MODEL}&strategy=explicit&strategy.indices=20-24&recovery=none&evaluation=false"
    )
    expect(page.locator('[id="strategy.indices"]')).to_have_value("20-24")
    expect(page.locator("#foreseen")).to_contain_text("5 of 30 layers go")
    page.get_by_role("button", name="Submit").click()
    [job] = jobs(served)
    assert job.spec_digest == JobSpec.model_validate(SPECS["named_layers"]).digest()


def test_every_field_has_a_place_for_its_flaw(served: Served) -> None:
    """Whatever is found wrong is said somewhere: beside a field, or for the form as a whole."""
    shown = served.get("/submit", served.cookie()).text
    offered = {one.name for part in (*METHODS, *SECTIONS) for one in settings_of(part, {})}
    # Tokens are taken only where the operator has set a key for them.
    places = offered | set(FREE) - {"hub_token"}
    assert {name for name in places if f'id="flaw-{name}"' not in shown} == set()


def test_training_speed_and_gate_are_asked_for_by_fields(opener: Opener, served: Served) -> None:
    """Each is switched on by its box, and a bound is a line; nothing needs to be written as JSON."""
    page = opener(java_script_enabled=False).new_page()
    page.goto(f"/submit?model={MODEL}&layers=5&finetune=true&finetune.epochs=2")
    page.get_by_text("What is measured", exact=True).click()
    page.get_by_label("Measure speed and memory too").check()
    page.locator('[id="evaluation.latency.rounds"]').fill("2")
    gate = page.locator('[id="evaluation.gate"]')
    gate.fill("perplexity is fine")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator('[id="flaw-evaluation.gate"]')).to_contain_text("such as perplexity: max_ratio=1.5")
    gate.fill("perplexity: max_ratio=1.5\nfirst_token_seconds: max_ratio=1")
    page.get_by_role("button", name="Submit").click()
    [job] = jobs(served)
    gate_asked = [
        {"metric": "perplexity", "max_ratio": 1.5},
        {"metric": "first_token_seconds", "max_ratio": 1.0},
    ]
    measured = {"latency": {"rounds": 2}, "gate": gate_asked}
    asked = {"model": MODEL, "layers": 5, "finetune": {"epochs": 2}, "evaluation": measured}
    assert job.spec_digest == JobSpec.model_validate(asked).digest()


def test_errors_without_javascript(opener: Opener, served: Served) -> None:
    """The form comes back as it was filled in, with the error beside its field."""
    page = opener(java_script_enabled=False).new_page()
    page.goto(f"/submit?model={MODEL}&layers=5&calibration.sequences=none&labels=team%3Dsearch")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator('[id="flaw-calibration.sequences"]')).to_contain_text("valid integer")
    expect(page.locator('[id="calibration.sequences"]')).to_have_value("none")
    expect(page.locator("#labels")).to_have_value("team=search")
    page.locator('[id="calibration.sequences"]').fill("8")
    page.get_by_role("button", name="Submit").click()
    [job] = jobs(served)
    assert job.spec["calibration"]["sequences"] == 8


def test_a_job_is_submitted_again(opener: Opener, served: Served) -> None:
    """The form that is made from a job asks for the same, says so in the new job, and can be edited."""
    first = served.scene.queued(RICH, team="search")
    page = opener(java_script_enabled=False).new_page()
    page.goto(f"/submit?from={first}")
    page.get_by_role("button", name="Submit").click()
    page.goto(f"/submit?from={first}&layers=3")
    page.get_by_role("button", name="Submit").click()
    original, same, edited = jobs(served)
    assert same.spec_digest == original.spec_digest
    assert (same.labels, same.deadline_seconds) == (original.labels, original.deadline_seconds)
    assert same.retry_of == edited.retry_of == first
    assert edited.spec == {**original.spec, "layers": 3}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_form_and_spec_say_the_same(spec: Mapping[str, Any]) -> None:
    """Whatever a spec holds, the form made of it asks for that spec."""
    made = JobSpec.model_validate({name: value for name, value in spec.items() if name != "labels"})
    values = values_of(made.model_dump(mode="json"), {}, 60)
    assert JobSubmission.model_validate(submission_of(values)).to_spec() == made


def test_only_what_has_no_field_is_left_to_json() -> None:
    """Of a job's spec the advanced part holds no more than it must: the fields can still be edited."""
    made = JobSpec.model_validate(RICH)
    values = values_of(made.model_dump(mode="json"), {}, 60)
    assert json.loads(values["advanced"]).keys() == {"evaluation"}
    assert json.loads(values["advanced"])["evaluation"].keys() == {"corpora", "tasks"}
    edited = submission_of({**values, "evaluation.windows": "2", "layers": "3"})
    assert made.evaluation is not None
    assert JobSubmission.model_validate(edited).evaluation == made.evaluation.model_copy(
        update={"windows": 2}
    )


@pytest.mark.parametrize("part", ["strategy", "recovery"])
def test_every_method_is_offered_with_its_settings(served: Served, part: str) -> None:
    """What the library can do, the form offers, without being told of it."""
    shown = served.twin("/submit.json")
    kinds = {"strategy": STRATEGIES, "recovery": RECOVERIES}[part]
    names = [kind.model_fields["name"].default for kind in kinds]
    assert [one["name"] for one in shown[{"strategy": "strategies", "recovery": "recoveries"}[part]]] == names
    for kind in kinds:
        offered = {one.name for one in settings_of(part, {part: kind.model_fields["name"].default})}
        assert offered == {f"{part}.{name}" for name in kind.model_fields if name != "name"}


def test_two_clicks_make_one_job(page: Page, served: Served) -> None:
    """A form sent twice, one after the other or at once, is one job."""
    page.goto(f"/submit?model={MODEL}&layers=5")
    page.get_by_role("button", name="Submit").dblclick()
    page.wait_for_url("**/jobs/*-*")
    assert len(jobs(served)) == 1
    cookie = served.cookie()
    fields = {"model": MODEL, "layers": "6", "idempotency_key": "twice"}
    fields["csrf_token"] = User(ANYONE, "", cookie).csrf_token
    told: list[str] = []

    def send() -> None:
        answer = httpx2.post(
            f"{served.url}/submit", data=fields, cookies={PLAIN_COOKIE: cookie}, follow_redirects=False
        )
        told.append(answer.headers["Location"])

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(set(told)) == 1
    assert len(told) == 3
    assert [job.id for job in jobs(served)][1:] == [UUID(told[0].rsplit("/", 1)[1])]
