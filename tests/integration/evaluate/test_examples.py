"""Examples before the question, as the harness gives them to a model."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ghosted_core.errors import TaskDataError
from ghosted_core.evaluate.own_process import own_environment
from ghosted_core.evaluate.tasks import TaskPlace, check_tasks
from ghosted_core.spec import HarnessTask
from tests.task_items import ARC, BOOLQ, write_items

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None,
    reason="lm-evaluation-harness is not installed (extra 'tasks')",
)
# As many as there are: all other rows of the split that is scored, or all of the file for examples.
SHOTS = {"arc_easy": 5, "boolq": 7, "openbookqa": 4, "gpqa_main_n_shot": 5}
# Words of the questions, each only in its own.
QUESTIONS = {
    "arc_easy": [item["question"] for item in ARC],
    "boolq": [item["question"] for item in BOOLQ],
    "openbookqa": [item["question"] for item in ARC[:2]],
    "gpqa_main_n_shot": [item["question"] for item in ARC],
}


def rows(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"question_stem": item["question"], "choices": item["choices"], "answerKey": item["answerKey"]}
        for item in items
    ]


def rows_to_shuffle(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    texts = [dict(zip(keys, item["choices"]["text"], strict=True)) for item in items]
    return [{"Question": item["question"], **each} for item, each in zip(items, texts, strict=True)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task whose only split is for tests, one with validation alone, one with a file for examples.

    And one that is scored on what it calls train, and shuffles answers.
    """
    folder = tmp_path_factory.mktemp("examples") / "data"
    write_items(folder, "arc_easy_test", ARC)
    write_items(folder, "boolq_validation", BOOLQ)
    write_items(folder, "gpqa_main_n_shot_train", rows_to_shuffle(ARC))
    write_items(folder, "openbookqa_test", rows(ARC[:2]))
    return write_items(folder, "openbookqa_train", rows(ARC[2:]))


@pytest.fixture(scope="module")
def runs(data: Path) -> list[dict[str, Any]]:
    """What two runs of each task ask and find."""
    wanted = [f"{name}:{shots}" for name, shots in SHOTS.items()]
    subprocess.run(
        [sys.executable, "-P", "-m", "tests.harness_prompts", str(data), *wanted],
        env=own_environment(os.environ, data.parent),
        cwd=data.parent,
        check=True,
        timeout=120,
    )
    found: list[dict[str, Any]] = json.loads((data.parent / "runs.json").read_text(encoding="utf-8"))
    return found


def test_every_model_is_asked_the_same(runs: list[dict[str, Any]]) -> None:
    """A second run has the same examples in the same order, and with the same model the same figures."""
    first, second = runs
    assert first == second


@pytest.mark.parametrize("task", SHOTS)
def test_no_question_is_its_own_example(task: str, runs: list[dict[str, Any]]) -> None:
    """Each prompt ends with a question that stands nowhere else in it, after other questions."""
    known = QUESTIONS["arc_easy"] + QUESTIONS["boolq"]
    for context, _ in runs[0][task]["requests"]:
        counts = {question: context.count(question) for question in known}
        asked = max(counts, key=context.rfind)
        assert asked in QUESTIONS[task]
        assert counts[asked] == 1
        assert sum(counts.values()) == SHOTS[task] + 1


@pytest.mark.parametrize("task", ["arc_easy", "openbookqa"])
def test_more_shots_than_examples_are_refused(task: str, data: Path) -> None:
    """Before the model is loaded, with the number of examples that there are."""
    wanted = [HarnessTask(name=task, shots=SHOTS[task] + more) for more in (0, 1)]
    with pytest.raises(TaskDataError, match=f"{SHOTS[task]} examples .* not {SHOTS[task] + 1}") as refused:
        check_tasks(wanted, TaskPlace(data, data.parent / "scratch"))
    assert "fewer shots" in refused.value.hint
