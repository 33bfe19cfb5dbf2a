"""The page of a job, in whatever state."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from services.dashboard.job_page import JobPage
from tests.dashboard.axe import violations
from tests.dashboard.conftest import Opener, Served, no_complaints
from tests.dashboard.results import CURVE, Result, fit, kept_in_spite, succeeded
from tests.dashboard.scenes import OUT_OF_MEMORY, furnish

SIZES = [(1280, 800), (360, 740)]


def inside(element: Locator, width: int, height: int) -> bool:
    """Whether all of the element is in a window that was not scrolled."""
    box = element.bounding_box()
    assert box is not None
    return box["y"] >= 0 and box["y"] + box["height"] <= height and box["x"] + box["width"] <= width


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("message", [OUT_OF_MEMORY.message, "Layer by layer it went wrong. " * 130])
def test_why_a_job_failed_is_said_without_scrolling(
    served: Served, opener: Opener, width: int, height: int, message: str
) -> None:
    """State, reason and what to try lie in the first screen, however long the message is."""
    fence = served.scene.running({"model": "Qwen/Qwen3-8B"})
    served.scene.stage(fence, "score", 12_288)
    served.scene.fail(fence, replace(OUT_OF_MEMORY, message=message))
    page = opener(viewport={"width": width, "height": height}).new_page()
    page.goto(f"/jobs/{fence.job_id}")
    for place in ("#now .badge", "#failure .reason", "#failure .advice"):
        assert inside(page.locator(place), width, height), place
    expect(page.locator("#failure")).to_contain_text("out_of_memory")
    expect(page.locator("#failure .advice")).to_contain_text("dtype bfloat16")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_how_far_a_job_is_is_said_without_scrolling(
    served: Served, opener: Opener, width: int, height: int
) -> None:
    """State, progress and what is left."""
    job_id = furnish(served.database, served.owner_id)["running"]
    page = opener(viewport={"width": width, "height": height}).new_page()
    page.goto(f"/jobs/{job_id}")
    for place in ("#now .badge", "#now progress", "#now .tiles"):
        assert inside(page.locator(place), width, height), place
    expect(page.locator("#now")).to_contain_text("evaluate")
    expect(page.locator("#now [data-until]")).to_be_visible()


def test_all_parts_of_a_result_are_there(served: Served, page: Page, tmp_path: Path) -> None:
    """Stages, layers with their scores, figures, fits, sizes, texts, files: as they were found."""
    job_id = succeeded(served.scene, served.store, tmp_path, Result())
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("#timeline tr.done")).to_have_count(9)
    expect(page.locator("#layers .layer")).to_have_count(30)
    removed = page.locator("#layers .layer.removed")
    expect(removed).to_have_count(5)
    removed.first.focus()
    (_, score) = Result().summary["plan"]["scores"]["candidates"][21]
    expect(removed.first).to_have_attribute(
        "data-tip", f"Layer 21: removed, score {score:.5g} of the run that begins here"
    )
    assert "Layer 21" in page.evaluate("getComputedStyle(document.activeElement, '::after').content"), (
        "the score is shown to who goes there with the keyboard"
    )
    expect(page.locator("#quality")).to_contain_text("27.35 ± 0.30")
    expect(page.locator("#quality")).to_contain_text("0.563 ± 0.009")
    expect(page.locator("#repairs tbody tr").first).to_contain_text("1.5e+06")
    expect(page.locator("#sizes")).to_contain_text("256.6 MiB")
    speed = page.locator("#sizes tr", has_text="decode tokens per second")
    expect(speed.locator("td")).to_have_text(["10.00", "11.80", "+18.0 %"])
    expect(page.locator("#sizes tr", has_text="peak memory")).to_contain_text("286.1 MiB")
    expect(page.locator("#continuations article")).to_have_count(2)
    expect(page.locator("#files tbody tr")).to_have_count(5)


def test_tasks_that_crashed_are_told_of(served: Served, page: Page, tmp_path: Path) -> None:
    """Among the figures that are there; where all ran, nothing is said."""
    for complete in (True, False):
        job_id = succeeded(served.scene, served.store, tmp_path, Result(tasks_complete=complete))
        page.goto(f"/jobs/{job_id}")
        expect(page.locator("#quality")).to_contain_text("27.35")
        expect(page.locator("#quality .note", has_text="not all ran")).to_have_count(0 if complete else 1)


def test_a_result_that_missed_its_gate_is_shown_whole(served: Served, page: Page, tmp_path: Path) -> None:
    """The miss comes first, in the first screen; then figures, fits and files as of one that succeeded."""
    job_id = kept_in_spite(served.scene, served.store, tmp_path, Result())
    page.goto(f"/jobs/{job_id}")
    expect(page.locator("#failure .reason")).to_contain_text("perplexity is 27.35")
    assert inside(page.locator("#failure .reason"), 1280, 800)
    expect(page.locator("#now .tiles")).to_contain_text("27.35")
    expect(page.locator("#layers .layer.removed")).to_have_count(5)
    expect(page.locator("#quality")).to_contain_text("27.35 ± 0.30")
    expect(page.locator("section[aria-labelledby=repairs-title] tbody tr")).to_have_count(1)
    expect(page.locator("#files .note")).to_contain_text("missed its gate: perplexity is 27.35")
    expect(page.locator("#files tbody tr")).to_have_count(5)
    page.goto("/compare")
    expect(page.locator(".choices li")).to_contain_text("missed its gate")


def test_the_layers_of_a_running_job_are_shown_once_chosen(served: Served, page: Page) -> None:
    """Before that the page says when; afterwards, without a reload, which go and what they scored."""
    fence = served.scene.running({"strategy": "shortgpt", "layers": 2})
    served.scene.stage(fence, "score", 10)
    page.goto(f"/jobs/{fence.job_id}")
    expect(page.locator("#layers")).to_contain_text("as soon as they are chosen")
    served.scene.choose_layers(fence, (3, 9), criterion="shortgpt", candidates=[[3, 0.1], [4, 0.5]])
    expect(page.locator("#layers .layer.removed")).to_have_count(2)
    expect(page.locator("#layers .run")).to_have_text(["3", "9"])
    expect(page.locator("#layers .layer").nth(3)).to_have_attribute("data-tip", "Layer 3: removed, score 0.1")


def test_layers_without_scores_say_why(served: Served, page: Page) -> None:
    """Where the job named its layers nothing was scored, and the strip says so."""
    fence = served.scene.running({"strategy": {"name": "explicit", "indices": "3,9"}, "layers": None})
    served.scene.choose_layers(fence, (3, 9), criterion="explicit", meaning="named by the user")
    page.goto(f"/jobs/{fence.job_id}")
    expect(page.locator("#layers")).to_contain_text("No scores, for none were needed: named by the user.")


def test_snippets_are_copied(served: Served, opener: Opener, tmp_path: Path) -> None:
    """The clipboard has the text to the letter."""
    job_id = succeeded(served.scene, served.store, tmp_path, Result())
    page = opener(permissions=["clipboard-read", "clipboard-write"]).new_page()
    page.goto(f"/jobs/{job_id}")
    page.get_by_text("Load and serve it").click()
    first = page.locator(".snippet").first
    first.get_by_role("button", name="Copy").click()
    expect(first.get_by_role("button")).to_have_text("Copied")
    told = served.twin(f"/jobs/{job_id}.json")["snippets"][0]["code"]
    assert "trust_remote_code=True" in told
    assert page.evaluate("navigator.clipboard.readText()") == told


def test_the_spectrum_is_drawn_and_reacts(served: Served, page: Page, tmp_path: Path) -> None:
    """Pointing shows figures, dragging zooms, and by night the colours are others."""
    job_id = succeeded(served.scene, served.store, tmp_path, Result())
    page.goto(f"/jobs/{job_id}")
    plot = page.locator(".plot")
    plot.scroll_into_view_if_needed()
    expect(plot).to_have_attribute("data-drawn", "yes")
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    points = plot.locator(".points path")
    first = points.nth(3).bounding_box()
    assert first is not None
    page.mouse.move(first["x"] + 2, first["y"] + 2)
    expect(plot.locator(".hovertext")).to_contain_text("singular value")
    extent = "JSON.stringify(document.querySelector('.plot').layout.xaxis.range)"
    before = page.evaluate(extent)
    page.mouse.move(box["x"] + 100, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 100, steps=5)
    page.mouse.up()
    page.wait_for_function(f"before => {extent} !== before", arg=before)
    ink = "document.querySelector('.plot .xtick text').style.fill"
    by_day = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"day => {ink} !== day", arg=by_day)


def test_the_page_is_whole_without_scripts(served: Served, opener: Opener, tmp_path: Path) -> None:
    """Every figure of the chart is in its table."""
    job_id = succeeded(served.scene, served.store, tmp_path, Result())
    page = opener(java_script_enabled=False).new_page()
    page.goto(f"/jobs/{job_id}")
    expect(page.locator(".plot")).to_be_hidden()
    page.locator(".chart summary").click()
    table = page.locator(".chart table")
    highest = fit(21, 26)["spectrum"]["singular_value"][0]
    expect(table).to_be_visible()
    expect(table.locator("tbody tr").first).to_contain_text(f"{highest:.4g}")


def test_the_page_does_without_a_report(served: Served, page: Page) -> None:
    """Where report.json cannot be read, what the database has is shown, and nothing else."""
    found = furnish(served.database, served.owner_id)
    page.goto(f"/jobs/{found['succeeded']}")
    expect(page.locator("#layers .layer.removed")).to_have_count(5)
    expect(page.locator("#repairs section")).to_have_count(0)
    expect(page.locator("#now .tiles")).to_contain_text(re.compile(r"Weights\s*\d"))


def test_the_twin_is_the_page(served: Served, tmp_path: Path) -> None:
    """The JSON has the fields of the page's dataclass, for a job in any state."""
    jobs = furnish(served.database, served.owner_id)
    rich = succeeded(served.scene, served.store, tmp_path, Result(curve=CURVE))
    for job_id in (*jobs.values(), rich):
        document = served.twin(f"/jobs/{job_id}.json")
        assert set(document) == {field.name for field in fields(JobPage)}
        assert document["job"]["id"] == str(job_id)
    assert document["repairs"][0]["condition"] == 1.4853e6
    assert document["charts"][0]["series"][0]["x"][0] == 1.0
    assert document["charts"][1]["series"][0]["y"] == [0.5, 0.3]


def test_axe_finds_nothing(served: Served, opener: Opener, tmp_path: Path) -> None:
    """By day and by night, on a phone and on a desk, for a job that succeeded, runs, failed and waits."""
    jobs = furnish(served.database, served.owner_id)
    rich = succeeded(served.scene, served.store, tmp_path, Result(removed=(3, 21, 22, 23)))
    found = [violations(opener, f"/jobs/{jobs[name]}") for name in ("running", "failed", "queued")]
    assert [*violations(opener, f"/jobs/{rich}"), *(one for some in found for one in some)] == []


def test_a_job_that_nobody_can_run_says_why(served: Served, opener: Opener) -> None:
    """What the API says of it, in the first screen."""
    job_id = served.scene.queued()
    page = opener(viewport={"width": 360, "height": 740}).new_page()
    with no_complaints(page):
        page.goto(f"/jobs/{job_id}")
        expect(page.locator("#now .stale")).to_have_text("no live worker")
        assert inside(page.locator("#now .stale"), 360, 740)
