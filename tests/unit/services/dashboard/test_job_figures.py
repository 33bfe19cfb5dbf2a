import math
from typing import Any

import pytest

from services.artifacts.manifest import Manifest, ManifestFile
from services.dashboard.job_figures import figure_rows
from services.dashboard.job_repairs import training_charts
from services.dashboard.job_sizes import sizes_of
from services.dashboard.report_file import Report
from tests.figures import metric


def test_variants_stand_beside_each_other() -> None:
    """One row a metric; its places are kept while nothing is measured yet; figures of no variant stay out."""
    rows = figure_rows(
        [metric("perplexity_dense", 4.0), metric("damage_ratio", 0.5), metric("kl_pruned", 0.1)]
    )
    assert [(row.metric, [cell.variant for cell in row.cells]) for row in rows] == [
        ("perplexity", ["dense", "pruned", "repaired"]),
        ("kl", ["dense", "pruned", "repaired"]),
    ]


def test_what_was_trained_is_the_result() -> None:
    """Where a model was trained after the repair, its figures have a place in every row, and count."""
    rows = figure_rows(
        [metric(f"acc_{name}", value) for name, value in (("repaired", 0.5), ("finetuned", 0.6))]
    )
    assert [cell.variant for cell in rows[0].cells][-1] == "finetuned"
    assert rows[0].result == 0.6


def test_the_error_of_a_perplexity_is_its_own() -> None:
    """d(e^x) = e^x dx: the error of the logarithm, times the perplexity."""
    nll, error = 3.0, 0.01
    (row,) = figure_rows([metric("perplexity_dense", math.exp(nll), standard_error_nll=error)])
    slope = (math.exp(nll + 1e-6) - math.exp(nll - 1e-6)) / 2e-6
    found = row.cells[0].error
    assert found is not None
    assert math.isclose(found, slope * error, rel_tol=1e-6)


def test_a_figure_that_is_no_number_says_why() -> None:
    """It has a reason instead of a value, and no bar; the others' bars are shares of the largest."""
    rows = figure_rows([metric("perplexity_dense", 5.0), metric("perplexity_pruned", None, "infinite")])
    dense, pruned, _ = rows[0].cells
    assert (dense.share, pruned.share, pruned.value, pruned.reason) == (1.0, None, None, "infinite")


def test_speeds_and_sizes_are_before_and_after() -> None:
    """Measured bytes take the place of the estimate; more tokens a second are better, seconds are not."""
    manifest = Manifest(
        files=(ManifestFile(path="model.safetensors", size_bytes=150, sha256="0" * 64),),
        summary={"source": {"parameters": 100}, "parameters": 75, "dtype": "bfloat16"},
    )
    rows = figure_rows(
        [
            metric("decode_tokens_per_second_dense", 10.0),
            metric("decode_tokens_per_second_repaired", 13.0),
            metric("first_token_seconds_dense", 0.4),
            metric("weight_bytes_dense", 208.0),
        ]
    )
    assert [row.lower_is_better for row in rows] == [False, True, True]
    estimated = {one.name: one for one in sizes_of(manifest, rows[:2])}
    assert (estimated["weights"].before, estimated["weights"].after) == (200, 150)
    assert estimated["decode tokens per second"].change == 13.0 / 10.0 - 1
    measured = {one.name: one for one in sizes_of(manifest, rows)}
    assert (measured["weights"].before, measured["weights"].note) == (208, "")


@pytest.mark.parametrize(
    ("name", "told", "expected"),
    [
        ("acc_norm_arc_easy", {}, False),
        ("mcc_cola", {}, False),
        ("perplexity_lambada_openai", {}, True),
        ("word_perplexity_wikitext", {}, None),
        ("word_perplexity_wikitext", {"higher_is_better": False}, True),
        ("brier_score_mine", {}, None),
        ("ter_wmt16", {"higher_is_better": False}, True),
        ("bleu_wmt16", {"higher_is_better": True}, False),
    ],
)
def test_which_way_is_better_is_the_harness_s_word(
    name: str, told: dict[str, Any], *, expected: bool | None
) -> None:
    """Where it has not said it, only what everybody knows is claimed."""
    (row,) = figure_rows([metric(f"{name}_dense", 0.5, task="its name", **told)])
    assert row.lower_is_better is expected


def test_training_has_a_curve_only_where_there_was_one() -> None:
    """A point without a loss, as the first one, is left out of that line alone."""
    assert training_charts(Report()) == ()
    points = [{"step": 0, "held_out_kl": 0.5, "loss": None}, {"step": 8, "held_out_kl": 0.3, "loss": 0.4}]
    (chart,) = training_charts(Report.model_validate({"finetune": {"curve": points}}))
    assert [(series.name, series.x, series.y) for series in chart.series] == [
        ("held-out text", (0.0, 8.0), (0.5, 0.3)),
        ("training loss", (8.0,), (0.4,)),
    ]
