from typing import Any

import pytest
from pydantic import ValidationError

from ghosted_core.catalog import builtin_catalog
from ghosted_core.spec import CatalogText, Evaluation, JobSpec
from services.errors import LocalPathRefusedError
from services.jobs.service import check_spec

FILE = {"kind": "local", "path": "/home/somebody/ptb.txt"}


def spec(**evaluation: Any) -> JobSpec:
    return JobSpec.model_validate({"model": "owner/name", "layers": 2, "evaluation": evaluation})


def test_names_stand_for_corpora_and_tasks() -> None:
    """With the catalog's text, no examples and all items."""
    evaluation = Evaluation.model_validate({"corpora": ["wikitext2", "c4"], "tasks": ["boolq"]})
    assert [corpus.text for corpus in evaluation.corpora] == [
        CatalogText(alias="wikitext2-test"),
        CatalogText(alias="c4-validation"),
    ]
    assert (evaluation.tasks[0].shots, evaluation.tasks[0].limit) == (0, None)
    assert all(name in builtin_catalog().texts for name in ("wikitext2-test", "c4-validation"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"corpora": ["ptb"]}, "needs a 'dataset'"),
        ({"corpora": [{"name": "mine"}]}, "needs a 'dataset'"),
        ({"corpora": ["c4", "c4"]}, "more than once"),
        ({"tasks": ["boolq", {"name": "boolq", "shots": 2}]}, "more than once"),
        ({"tasks": ["../boolq"]}, "pattern"),
        ({"gate": [{"metric": "perplexity"}]}, "no limit"),
        ({"gate": [{"metric": "perplexity_c4", "max_ratio": 2}]}, "does not measure"),
        ({"gate": [{"metric": "acc_boolq", "max_drop": 0.1}]}, "does not measure"),
        ({"windows": 0, "gate": [{"metric": "perplexity", "max_ratio": 2}]}, "does not measure"),
        ({"gate": [{"metric": "perplexity", "max_ratio": float("nan")}]}, "finite"),
        ({"gate": [{"metric": "kl", "max_rise": 1}]}, "no such figure"),
        ({"gate": [{"metric": "damage_ratio", "max": 1, "max_ratio": 1}]}, "no such figure"),
    ],
)
def test_what_cannot_be_measured_is_refused(fields: dict[str, Any], said: str) -> None:
    """Before any work."""
    with pytest.raises(ValidationError, match=said):
        Evaluation.model_validate(fields)


def test_a_gate_may_bound_whatever_is_measured() -> None:
    """Text, corpora, likeness, repetition, and any metric that a task may have: only the harness knows."""
    metrics = ["perplexity", "nll_c4", "damage_ratio", "kl", "distinct_2", "acc_norm_arc_easy"]
    gate = [{"metric": metric, "max": 1.0} for metric in metrics]
    evaluation = Evaluation.model_validate({"corpora": ["c4"], "tasks": ["arc_easy"], "gate": gate})
    assert [bound.metric for bound in evaluation.gate] == metrics
    assert evaluation.bounded_of_tasks == ("acc_norm_arc_easy",)


def test_what_is_not_repaired_cannot_heal() -> None:
    """The gate of such a job could only be missed; training heals too."""
    gate = [{"metric": "damage_ratio", "max": 0.5}]
    fields = {"model": "owner/name", "layers": 2, "recovery": "none", "evaluation": {"gate": gate}}
    with pytest.raises(ValidationError, match="heals nothing"):
        JobSpec.model_validate(fields)
    assert JobSpec.model_validate({**fields, "finetune": {"trainable": "down_proj"}}).evaluation


@pytest.mark.parametrize(("windows", "usual"), [(3, 3), (0, 16)])
def test_no_windows_of_its_own_text_do_not_mean_the_whole_of_a_corpus(windows: int, usual: int) -> None:
    """That is 'all'."""
    assert Evaluation.model_validate({"windows": windows, "corpora": ["c4"]}).usual_windows == usual


def test_the_public_spec_has_no_folder_of_this_machine() -> None:
    """Of a corpus file only the name is left."""
    public = spec(dataset=FILE, corpora=[{"name": "ptb", "dataset": FILE}]).public()
    assert "somebody" not in public.canonical_json()
    assert public.canonical_json().count("ptb.txt") == 2


def test_the_service_reads_no_corpus_from_its_own_disk() -> None:
    """A user's path is refused wherever it stands, and the field is named."""
    with pytest.raises(LocalPathRefusedError) as refused:
        check_spec(spec(corpora=["c4", {"name": "ptb", "dataset": FILE}]), builtin_catalog())
    assert refused.value.field == "evaluation.corpora.1.dataset"


def test_the_longest_window_is_of_any_text() -> None:
    """Corpora may have longer ones than calibration."""
    corpora = [{"name": "wikitext2"}, {"name": "c4", "sequence_length": 4096}]
    assert spec(corpora=corpora).longest_window == ("evaluation.corpora.1.sequence_length", 4096)
    assert spec(sequence_length=512).longest_window == ("calibration.sequence_length", 2048)
