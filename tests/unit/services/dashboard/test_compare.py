import csv
import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from services.dashboard.compare_figures import (
    Compared,
    Measure,
    Point,
    compared,
    front,
    points,
    qualities,
    trade_off,
    unlike,
)
from services.dashboard.compare_table import as_csv, differences, figure_lines, inert
from services.dashboard.formatting import NONE
from services.dashboard.job_figures import figure_rows
from services.db.models import Job, JobMetric
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


def measured(number: int, *metrics: JobMetric, model: str = "owner/name") -> Compared:
    spec = {"strategy": {"name": "reverse"}, "layers": 1, "recovery": {"name": "none"}}
    return compared(job(number, model={"kind": "hub", "id": model}, **spec), figure_rows(metrics))


BOOLQ = {"task": "boolq", "shots": 0, "items": 3270, "files": {"boolq_validation.jsonl": "1" * 64}}
TEXT = {"dataset": "wiki", "fingerprint": "1" * 64, "windows": 16, "length": 512, "part": "all", "seed": 0}


@pytest.mark.parametrize(
    ("name", "detail", "other", "differs"),
    [
        ("acc_boolq", BOOLQ, {"shots": 5, "items": 10}, "items (3270, 10), shots (0, 5)"),
        ("acc_boolq", BOOLQ, {"files": {"boolq_validation.jsonl": "2" * 64}}, "files"),
        ("acc_boolq", BOOLQ, {"task_version": "3.0"}, f"task version ({NONE}, 3.0)"),
        ("acc_boolq", BOOLQ, {"standard_error": 0.1}, ""),
        ("perplexity", TEXT, {"part": "evaluation", "seed": 1}, "part (all, evaluation), seed (0, 1)"),
        ("perplexity", TEXT, {"fingerprint": "2" * 64, "nll": 2.0}, "fingerprint"),
    ],
)
def test_figures_compare_if_they_were_measured_alike(
    name: str, detail: dict[str, Any], other: dict[str, Any], differs: str
) -> None:
    """Where they were not, it is said in what, none is the best, and there is no front."""
    jobs = [
        measured(number, metric(f"{name}_repaired", value, **found))
        for number, value, found in ((1, 0.5, detail), (2, 0.6, {**detail, **other}))
    ]
    (line,) = figure_lines(jobs, {name: Measure(name, name, lower_is_better=False)})
    assert (line.unlike, line.best) == (differs, (False, not differs))
    sized = [replace(one, figures={**one.figures, "weights": 1.0}) for one in jobs]
    chart = trade_off(sized, WEIGHTS, Measure(name, name, lower_is_better=False))
    assert chart is not None
    assert ("Pareto front" in [series.name for series in chart.series]) == (not differs)


def test_perplexities_of_other_models_do_not_compare_but_accuracies_do() -> None:
    """A perplexity is one of a tokenizer's tokens; the items of a task are the same for all."""
    figures = metric("perplexity_repaired", 2.0, **TEXT), metric("acc_boolq_repaired", 0.5, **BOOLQ)
    jobs = [measured(1, *figures, model="a/b"), measured(2, *figures, model="c/d")]
    assert unlike(jobs, "perplexity") == "model (a/b, c/d)"
    assert unlike(jobs, "acc_boolq") == ""


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
