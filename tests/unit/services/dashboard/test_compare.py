import csv
import io
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from services.dashboard.compare_figures import (
    Compared,
    Measure,
    Point,
    front,
    points,
    qualities,
    trade_off,
)
from services.dashboard.compare_table import as_csv, differences, figure_lines, inert
from services.dashboard.job_figures import figure_rows
from services.db.models import Job
from tests.figures import metric

WEIGHTS = Measure("weights", "weights", lower_is_better=True)
PERPLEXITY = Measure("perplexity", "perplexity", lower_is_better=True)
ACCURACY = Measure("acc", "acc", lower_is_better=False)
HOSTILE = '=HYPERLINK("http://evil";"x")'

coordinates = st.integers(0, 6).map(float)
clouds = st.lists(
    st.builds(Point, st.just("p"), coordinates, coordinates, st.none()), min_size=1, max_size=20
)


def beaten(one: Point, by: Point, up: Measure) -> bool:
    """By definition: no axis worse, one better."""
    better_y = by.y < one.y if up.lower_is_better else by.y > one.y
    return (by.x <= one.x and (better_y or by.y == one.y)) and (by.x < one.x or better_y)


@given(clouds, st.sampled_from([PERPLEXITY, ACCURACY]))
def test_the_front_is_what_nothing_beats(cloud: list[Point], up: Measure) -> None:
    """Nothing beats a point on it; whatever is not on it is beaten by a point that is."""
    best = front(cloud, WEIGHTS, up)
    assert not any(beaten(one, by, up) for one in best for by in cloud)
    assert all(one in best or any(beaten(one, by, up) for by in best) for one in cloud)
    assert [point.x for point in best] == sorted(point.x for point in best)


def job(number: int, **spec: object) -> Job:
    return Job(
        id=UUID(int=number),
        spec={"model": {"kind": "hub", "id": "owner/name"}, **spec},
        state="succeeded",
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


def found(number: int, figures: dict[str, float], dense: dict[str, float] | None = None) -> Compared:
    return Compared(UUID(int=number), "succeeded", "owner/name", f"job {number}", figures, dense or {}, {})


def test_a_model_is_drawn_once_however_many_jobs_began_with_it() -> None:
    """Two jobs and the dense model they share are three points; a job without the figure is none."""
    dense = {"weights": 3.0, "perplexity": 1.0}
    jobs = [found(n, {"weights": n, "perplexity": 9.0 - n}, dense) for n in (1, 2)] + [
        found(3, {"weights": 1})
    ]
    assert [point.job_id for point in points(jobs, WEIGHTS, PERPLEXITY)] == [UUID(int=1), UUID(int=2), None]


def test_perplexities_that_lie_far_apart_are_drawn_on_a_logarithmic_axis() -> None:
    """Else the good models would all lie on the axis; accuracies never are."""
    far = [found(1, {"weights": 1, "perplexity": 10.0}), found(2, {"weights": 2, "perplexity": 4000.0})]
    chart = trade_off(far, WEIGHTS, PERPLEXITY)
    assert chart is not None
    assert chart.y.logarithmic
    assert trade_off([], WEIGHTS, PERPLEXITY) is None


def test_only_what_differs_is_listed() -> None:
    """Equal values are left out; what a spec has not is a dash."""
    jobs = [
        job(1, layers=2, recovery={"name": "ghosted", "ridge": 1e-6}),
        job(2, layers=2, recovery={"name": "none"}),
    ]
    assert [(one.path, one.values) for one in differences(jobs)] == [
        ("recovery.name", ("ghosted", "none")),
        ("recovery.ridge", ("1e-06", "\N{EN DASH}")),
    ]


def test_what_nobody_knows_to_be_better_is_no_quality() -> None:
    """Such a figure of a task is no axis; where one of the jobs says which way is better, it is one."""
    unknown, known = (
        figure_rows([metric("ter_wmt16_dense", 0.5, task="wmt16", **told)])
        for told in ({}, {"higher_is_better": False})
    )
    assert qualities(unknown) == ()
    assert qualities((*known, *unknown)) == (Measure("ter_wmt16", "ter_wmt16", lower_is_better=True),)


def test_the_best_figure_is_the_lowest_or_the_highest() -> None:
    """As the measure says; a figure of which nobody knows that has no best one."""
    jobs = [
        found(1, {"perplexity": 9.0, "acc": 0.5, "odd": 1.0}),
        found(2, {"perplexity": 7.0, "acc": 0.4, "odd": 2.0}),
    ]
    lines = figure_lines(jobs, {"perplexity": PERPLEXITY, "acc": ACCURACY})
    assert [(line.title, line.best) for line in lines] == [
        ("perplexity", (False, True)),
        ("acc", (True, False)),
        ("odd", (False, False)),
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", HOSTILE])
def test_no_text_is_a_formula(text: str) -> None:
    """It begins with an apostrophe, behind which spreadsheets see a text."""
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "1e-06", "plain", "", "a=b"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    """Negative numbers among them."""
    assert inert(text) == text


def test_the_csv_reads_back(tmp_path: object) -> None:
    """A header, a line a job, numbers exact, hostile texts whole and inert, also as names of columns."""
    jobs = [job(1, layers=2, **{HOSTILE: HOSTILE}), job(2, layers=3)]
    text = as_csv(jobs, [found(1, {"perplexity": 1 / 3}, {"perplexity": 0.1}), found(2, {})])
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert float(first["perplexity"]) == 1 / 3
    assert float(first["dense perplexity"]) == 0.1
    assert first[f"'{HOSTILE}"] == f"'{HOSTILE}"
    assert (second["perplexity"], second["layers"], second["model.id"]) == ("", "3", "owner/name")
