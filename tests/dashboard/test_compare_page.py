"""Jobs beside each other, in a browser."""

import csv
import io
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest
from playwright.sync_api import Page, expect

from services.dashboard.compare_page import MOST_JOBS, ComparePage
from tests.dashboard.axe import violations
from tests.dashboard.conftest import Opener, Served
from tests.dashboard.results import TEXT, Result, succeeded


@pytest.fixture
def three(served: Served, tmp_path: Path) -> list[UUID]:
    """Three ways to make one model smaller, of which the last is beaten by the first on both axes."""
    results = [
        (Result(), {"layers": 5}),
        (
            Result((3, 5, 9, 11), (18.42, 300.0, 60.0), (0.6, 0.4, 0.41), 190_000_000),
            {"strategy": "shortgpt", "layers": 4},
        ),
        (
            Result(perplexities=(18.42, 90.0, 70.0), accuracies=(0.6, 0.3, 0.58), file_bytes=240_000_000),
            {"layers": 5, "recovery": "prune_and_comp"},
        ),
    ]
    return [
        succeeded(served.scene, served.store, tmp_path, result, **spec)  # type: ignore[arg-type]
        for result, spec in results
    ]


def asking(jobs: Iterable[UUID]) -> str:
    """The query of an address that compares these."""
    return "&".join(f"job={one}" for one in jobs)


def test_jobs_are_picked_and_compared(served: Served, page: Page, three: list[UUID]) -> None:
    """Three boxes and a button: a chart, where their specs differ, which is best at what."""
    page.goto("/compare")
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare").click()
    asked = parse_qs(urlsplit(page.url).query)
    assert set(asked["job"]) == {str(one) for one in three}
    plot = page.locator(".plot")
    expect(plot).to_have_attribute("data-drawn", "yes")
    # Three jobs and what they began with; the front joins all but the one that is beaten.
    expect(plot.locator(".points path")).to_have_count(4)
    expect(page.locator(".compared")).to_contain_text("recovery.name")
    expect(page.locator(".compared")).not_to_contain_text("calibration.sequences")
    expect(page.locator("tr", has_text="perplexity").locator("strong")).to_contain_text("27.35")


def test_the_front_leaves_out_who_is_beaten(served: Served, three: list[UUID]) -> None:
    """On the chart's data: the dense model and the two jobs that win something."""
    chart = served.twin(f"/compare.json?{asking(three)}")["charts"][0]
    front = next(series for series in chart["series"] if series["name"] == "Pareto front")
    assert {link.removeprefix("/jobs/") for link in front["links"]} == {str(three[0]), str(three[1]), ""}


def test_speed_and_accuracy_can_be_the_axes(served: Served, three: list[UUID]) -> None:
    """Whatever was measured of the machine's time is a cost, and every task is a quality."""
    document = served.twin(f"/compare.json?{asking(three)}&x=decode_tokens_per_second&y=acc_boolq")
    (chart,) = document["charts"]
    assert chart["title"] == "acc_boolq against decode tokens per second"
    assert chart["series"][0]["x"] == [11.8, 11.8, 11.8]


def test_the_axes_are_chosen(served: Served, page: Page, three: list[UUID]) -> None:
    """Accuracy against parameters, by the form alone; a job is a click away from the chart."""
    page.goto(f"/compare?{asking(three)}")
    page.get_by_label("Across").select_option("parameters")
    page.get_by_label("Up").select_option("acc_boolq")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("figcaption")).to_have_text("acc_boolq against parameters in millions")
    plot = page.locator(".plot")
    expect(plot).to_have_attribute("data-drawn", "yes")
    place = plot.locator(".points path").first.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + 4, place["y"] + 4)
    expect(plot.locator(".hovertext")).to_contain_text("Ghosted Layers")
    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(f"{served.url}/jobs/{three[0]}")


def test_what_is_compared_is_exported(served: Served, page: Page, three: list[UUID]) -> None:
    """As CSV with a line a job, and as JSON with the page's own fields."""
    page.goto(f"/compare?{asking(three)}")
    with page.expect_download() as caught:
        page.get_by_role("link", name="CSV").click()
    lines = list(csv.DictReader(io.StringIO(Path(caught.value.path()).read_text(), newline="")))
    assert [line["job"] for line in lines] == [str(one) for one in three]
    assert [float(line["perplexity"]) for line in lines] == [27.35, 60.0, 70.0]
    assert [line["recovery.name"] for line in lines] == ["ghosted", "ghosted", "prune_and_comp"]
    document = served.twin(f"/compare.json?{asking(three)}")
    assert set(document) == {field.name for field in fields(ComparePage)}


def test_values_that_do_not_compare_are_said_to(served: Served, page: Page, tmp_path: Path) -> None:
    """Two perplexities on different texts stand beside each other with a warning, and none is the best."""
    other = Result(perplexities=(18.42, 90.0, 20.0), text={**TEXT, "windows": 4, "fingerprint": "other"})
    jobs = [succeeded(served.scene, served.store, tmp_path, one) for one in (Result(), other)]
    page.goto(f"/compare?{asking(jobs)}")
    differs = "fingerprint, windows (16, 4)"
    expect(page.get_by_role("note")).to_contain_text(f"do not compare: they differ in {differs}.")
    row = page.locator("tr", has_text="perplexity")
    expect(row.get_by_role("rowheader")).to_contain_text(f"do not compare: {differs}")
    expect(row.locator("strong")).to_have_count(0)


def test_more_jobs_than_fit_beside_each_other_are_refused(served: Served) -> None:
    """With the number that does, and what to do."""
    answer = served.get(f"/compare?{asking(uuid4() for _ in range(MOST_JOBS + 1))}", served.cookie())
    assert answer.status_code == 422
    assert f"at most {MOST_JOBS} are compared at once" in answer.text


def test_without_jobs_the_page_says_what_to_do_first(served: Served, page: Page) -> None:
    """Nothing to compare yet: the way to the form."""
    page.goto("/compare")
    expect(page.locator("main").get_by_role("link", name="Submit a job")).to_be_visible()


def test_axe_finds_nothing(opener: Opener, three: list[UUID]) -> None:
    """By day and by night, on a phone and on a desk, before picking and after."""
    assert violations(opener, f"/compare?{asking(three)}") + violations(opener, "/compare") == []
