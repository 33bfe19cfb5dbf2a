import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.load import load_model
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.errors import HarnessError, InvalidSpecError, TaskDataError, UnknownTaskError
from ghosted_core.evaluate import tasks as module
from ghosted_core.evaluate.own_process import own_environment
from ghosted_core.evaluate.suite import measure_tasks, task_metric
from ghosted_core.evaluate.task_protocol import Score, Subject, TaskRequest
from ghosted_core.evaluate.task_subjects import save_repair
from ghosted_core.evaluate.tasks import TaskPlace, check_tasks, run_tasks
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.surgery import repaired_model
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import Logged, MemoryRecorder, MetricMeasured, StageProgressed, StageStarted
from ghosted_core.spec import HarnessTask, LocalModel
from tests.task_items import ARC, BOOLQ, OF_EACH_TASK, write_items
from tests.tokenizers_made_here import byte_tokenizer

needs_harness = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None,
    reason="lm-evaluation-harness is not installed (extra 'tasks')",
)
DOCUMENTED = (
    "arc_easy",
    "arc_challenge",
    "hellaswag",
    "winogrande",
    "boolq",
    "openbookqa",
    "rte",
    "copa",
    "race",
)
EACH = [HarnessTask(name=name) for name in (*DOCUMENTED, "lambada_openai")]
CUT = Boundary(2, 4)
REMOVED = PruningPlan.from_removed([2, 3], layer_count=6)


def log_likelihood(model: PreTrainedModel, context: str, ending: str) -> float:
    """Of the bytes of `ending` after `context`, by one pass over both."""
    tokenizer = byte_tokenizer()
    prefix, whole = (tokenizer(text)["input_ids"] for text in (context, context + ending))
    logits = model(torch.tensor([whole[:-1]])).logits[0].double().log_softmax(-1)
    return sum(float(logits[place - 1, whole[place]]) for place in range(len(prefix), len(whole)))


def best(values: list[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


@torch.no_grad()
def boolq_accuracy(model: PreTrainedModel, limit: int) -> float:
    right = 0
    for item in BOOLQ[:limit]:
        context = f"{item['passage']}\nQuestion: {item['question']}?\nAnswer:"
        right += best([log_likelihood(model, context, f" {word}") for word in ("no", "yes")]) == item["label"]
    return right / limit


@torch.no_grad()
def arc_accuracy(model: PreTrainedModel, norm: Callable[[str], float]) -> float:
    right = 0
    for item in ARC:
        context = f"Question: {item['question']}\nAnswer:"
        choices: Any = item["choices"]
        scores = [log_likelihood(model, context, f" {text}") / norm(text) for text in choices["text"]]
        right += "ABCD"[best(scores)] == item["answerKey"]
    return right / len(ARC)


@pytest.fixture(scope="module")
def source(tiny_folder: Path) -> ModelSource:
    reference = LocalModel(path=str(tiny_folder))
    return resolve(reference, catalog=builtin_catalog(), cache=tiny_folder, hub_token=None, log=print)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> TaskPlace:
    data = write_items(tmp_path_factory.mktemp("tasks") / "data", "boolq_validation", BOOLQ)
    return TaskPlace(write_items(data, "arc_easy_test", ARC), data.parent / "scratch")


@pytest.fixture(scope="module")
def ran(source: ModelSource, place: TaskPlace) -> tuple[MemoryRecorder, dict[str, PreTrainedModel]]:
    """What is recorded of two tasks on three variants, and the dense and repaired models."""
    dense = load_model(source, dtype="auto", device="cpu")
    corrections = {CUT: torch.randn(32, 32, generator=torch.Generator().manual_seed(3)).double() / 8}
    place.scratch.mkdir(exist_ok=True)
    save_repair(place.scratch / "repair.safetensors", corrections, {})
    subject = Subject(
        source=source,
        is_checkpoint=False,
        dtype="auto",
        device="cpu",
        variants=("dense", "pruned", "repaired"),
        layer_count=6,
        removed=REMOVED.removed,
        repair=place.scratch / "repair.safetensors",
    )
    recorder = MemoryRecorder()
    wanted = (HarnessTask(name="boolq", limit=5), HarnessTask(name="arc_easy"))
    _, complete = measure_tasks(wanted, subject, place, recorder, ProcessMeter(torch.device("cpu")))
    assert complete
    return recorder, {"dense": dense, "repaired": repaired_model(dense, REMOVED, corrections)}


@needs_harness
def test_accuracy_is_that_of_our_own_sums(ran: tuple[MemoryRecorder, dict[str, PreTrainedModel]]) -> None:
    """acc by summed log-likelihood, acc_norm by that per byte; of a few items as of all, for each model."""
    recorder, models = ran
    found = {e.name: e for e in recorder.events if isinstance(e, MetricMeasured)}
    for name, model in models.items():
        assert found[f"acc_boolq_{name}"].value == pytest.approx(boolq_accuracy(model, 5))
        assert found[f"acc_arc_easy_{name}"].value == pytest.approx(arc_accuracy(model, lambda _: 1.0))
        by_length = arc_accuracy(model, lambda text: float(len(text)))
        assert found[f"acc_norm_arc_easy_{name}"].value == pytest.approx(by_length)
    assert {"acc_boolq_pruned", "acc_norm_arc_easy_pruned"} <= found.keys()


@needs_harness
def test_each_figure_says_what_it_is_of(ran: tuple[MemoryRecorder, dict[str, PreTrainedModel]]) -> None:
    """Standard error, items, examples, harness, and the files that the items are from."""
    metrics = {e.name: e for e in ran[0].events if isinstance(e, MetricMeasured)}
    detail, value = metrics["acc_boolq_dense"].detail, metrics["acc_boolq_dense"].value
    assert detail["standard_error"] == pytest.approx(math.sqrt(value * (1 - value) / 4))
    assert (detail["task"], detail["items"], detail["shots"], detail["limit"]) == ("boolq", 5, 0, 5)
    assert detail["harness"].startswith("lm-evaluation-harness 0.4")
    assert list(detail["files"]) == ["boolq_validation.jsonl"]


@needs_harness
def test_progress_counts_items_of_all_models(ran: tuple[MemoryRecorder, dict[str, PreTrainedModel]]) -> None:
    """From nothing to all, never back; nothing else is left in the scratch folder."""
    recorder, _ = ran
    (started,) = (event for event in recorder.events if isinstance(event, StageStarted))
    done = [event.done for event in recorder.events if isinstance(event, StageProgressed)]
    assert (started.unit, started.total) == ("task items", 3 * (5 + len(ARC)))
    assert done == sorted(done)
    assert done[-1] == started.total
    assert len(done) > 6


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> TaskPlace:
    folder = tmp_path_factory.mktemp("each")
    for name, items in OF_EACH_TASK.items():
        write_items(folder / "data", name, items)
    return TaskPlace(folder / "data", folder / "scratch")


@pytest.fixture(scope="module")
def scores(source: ModelSource, each: TaskPlace) -> dict[tuple[str, str], Score]:
    """What the harness finds of a few items of each task, by task and metric."""
    subject = Subject(source=source, is_checkpoint=False, dtype="auto", device="cpu", variants=("dense",))
    with run_tasks(EACH, subject, each) as said:
        return {(one.task, one.metric): one for one in said if isinstance(one, Score)}


@needs_harness
def test_each_documented_task_runs_from_a_file(scores: dict[tuple[str, str], Score]) -> None:
    """All of its items are scored, and the accuracy is a share of them."""
    for name in DOCUMENTED:
        score = scores[name, "acc"]
        assert score.detail["items"] == 2
        assert score.value in {0, 0.5, 1}


@needs_harness
def test_figures_that_are_no_means_have_an_error_too(scores: dict[tuple[str, str], Score]) -> None:
    """The harness draws samples for it, by default in processes that it forks."""
    error = scores["lambada_openai", "perplexity"].standard_error
    assert error is not None
    assert error > 0


@needs_harness
def test_each_figure_says_which_way_is_better(scores: dict[tuple[str, str], Score]) -> None:
    """As the harness does: a task may be scored by a perplexity, too."""
    for metric, expected in (("acc", True), ("perplexity", False)):
        assert scores["lambada_openai", metric].detail["higher_is_better"] is expected


@needs_harness
def test_whatever_is_found_may_be_bounded(scores: dict[tuple[str, str], Score], each: TaskPlace) -> None:
    """What a task will have is known before it runs, by the names that it has afterwards."""
    check_tasks(EACH, each, [task_metric(score).removesuffix("_dense") for score in scores.values()])


@needs_harness
def test_a_bound_on_what_no_task_has_is_refused(place: TaskPlace) -> None:
    """Before the work, with the metrics that there are; the gate would be missed at its end."""
    tasks = [HarnessTask(name="boolq"), HarnessTask(name="arc_easy")]
    with pytest.raises(InvalidSpecError, match="acc_norm_boolq") as refused:
        check_tasks(tasks, place, ["acc_norm_arc_easy", "acc_norm_boolq"])
    assert "Bound acc_boolq;" in refused.value.hint


@needs_harness
def test_a_bound_that_nobody_can_tell_of_is_let_pass(tmp_path: Path) -> None:
    """A function of the task names its metrics when it scores."""
    row = {name: {"choices": ["a fox", "a hen"], "labels": [1, 0]} for name in ("mc1_targets", "mc2_targets")}
    data = write_items(tmp_path, "truthfulqa_mc2_validation", [{"question": "Who?", **row}])
    check_tasks([HarnessTask(name="truthfulqa_mc2")], TaskPlace(data, tmp_path), ["luck_truthfulqa_mc2"])


def test_the_process_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """It has nobody to answer once the other end of its stdin is closed."""
    request = TaskRequest(tasks=(HarnessTask(name="boolq"),), data=tmp_path, subject=None)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", module.MODULE],
        input=request.model_dump_json().encode() + b"\n",
        env=own_environment(os.environ, tmp_path),
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"")


@needs_harness
@pytest.mark.parametrize(("name", "error"), [("no_such_task", UnknownTaskError), ("copa", TaskDataError)])
def test_tasks_that_cannot_run_are_found_before_the_work(
    name: str, error: type[Exception], place: TaskPlace
) -> None:
    """An unknown name, a missing file: no process and no file is left."""
    place.scratch.mkdir(exist_ok=True)
    before = set(place.scratch.iterdir())
    with pytest.raises(error, match=name):
        check_tasks([HarnessTask(name=name)], place)
    assert set(place.scratch.iterdir()) == before


@needs_harness
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("humaneval", "runs programs"),
        ("mmmu_val_accounting", "shows images"),
        ("niah_single_1", "makes its items"),
    ],
)
def test_what_no_model_of_text_alone_may_do_is_refused(name: str, why: str, place: TaskPlace) -> None:
    """Items would not help, and the harness would refuse it only once the models are there."""
    with pytest.raises(TaskDataError, match=f"{name}.*{why}") as refused:
        check_tasks([HarnessTask(name=name)], place)
    assert "text and nothing else" in refused.value.hint


def test_without_a_folder_nothing_is_fetched(tmp_path: Path) -> None:
    """The harness would ask the network; we do not let it, and say what to give."""
    with pytest.raises(TaskDataError, match="boolq"):
        check_tasks([HarnessTask(name="boolq")], TaskPlace(None, tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_crash_is_an_error_that_has_the_last_words_beside_its_own(
    place: TaskPlace, source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And costs a job nothing but the tasks' figures."""
    # A module that ends with a traceback, as a crashing harness does.
    monkeypatch.setattr(module, "MODULE", "ghosted_core.no_such_module")
    subject = Subject(source=source, is_checkpoint=False, dtype="auto", device="cpu", variants=("dense",))
    wanted = [HarnessTask(name="boolq")]
    crash = pytest.raises(HarnessError, match="ended with code 1")
    with crash as raised, run_tasks(wanted, subject, place) as said:
        list(said)
    assert "no_such_module" not in raised.value.message
    assert "no_such_module" in raised.value.output
    recorder = MemoryRecorder()
    metrics, complete = measure_tasks(wanted, subject, place, recorder, ProcessMeter(torch.device("cpu")))
    assert (metrics, complete) == ((), False)
    (warning,) = (e for e in recorder.events if isinstance(e, Logged))
    assert "no_such_module" not in warning.message
    assert "no_such_module" in str(warning)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            '  File "/srv/a.py"\nKeyError: 1\n\ntorch.OutOfMemoryError: of 2 GB',
            " (OutOfMemoryError)",
        ),
        ("Some Error happened in /srv", ""),
        ("", ""),
    ],
)
def test_of_a_crash_the_type_is_told(words: str, said: str) -> None:
    """That of the last exception, without what it says."""
    assert module._fault(words) == said


def test_the_harness_has_no_credentials_and_no_network(tmp_path: Path) -> None:
    """Of the outer environment only what is needed to run is left; all caches are below the folder."""
    secrets = {"HF_TOKEN": "hf_secret", "AWS_SECRET_ACCESS_KEY": "secret"}
    outer = {"PATH": "/bin", "HOME": "/root", "PYTHONPATH": ".", **secrets}
    found = own_environment(outer, tmp_path)
    assert "secret" not in str(found)
    assert secrets.keys().isdisjoint(found)
    assert [found[f"{name}_OFFLINE"] for name in ("HF_HUB", "HF_DATASETS", "TRANSFORMERS")] == ["1"] * 3
    for name in ("HOME", "TMPDIR", "HF_HOME", "HF_DATASETS_CACHE", "XDG_CACHE_HOME"):
        assert Path(found[name]).is_relative_to(tmp_path)
    assert all(Path(entry).is_absolute() for entry in found["PYTHONPATH"].split(":"))
