"""Two runs of tasks by one model, and all that the harness asks of it: `python -m tests.harness_prompts`.

Arguments: the folder of task data, then tasks as NAME:SHOTS. A program of its own, as the harness needs.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghosted_core.batching import LOGIT_BYTES
from ghosted_core.evaluate.harness import BoundedModel, load_tasks, run_task
from ghosted_core.spec import HarnessTask
from ghosted_core.testing import tiny_llama
from tests.tokenizers_made_here import byte_tokenizer


class Hearing(BoundedModel):
    """Keeps what it is asked, context and ending."""

    def loglikelihood(self, requests: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        self.heard = [request.args for request in requests]
        return super().loglikelihood(requests, *args, **kwargs)


def main(data: str, *wanted: str) -> None:
    pairs = [text.split(":") for text in wanted]
    tasks = load_tasks([HarnessTask(name=name, shots=int(shots)) for name, shots in pairs], Path(data))
    model = Hearing(tiny_llama(), byte_tokenizer(), LOGIT_BYTES)
    runs = [{task.task.name: _run(task, model) for task in tasks} for _ in range(2)]
    # The harness prints too.
    Path("runs.json").write_text(json.dumps(runs), encoding="utf-8")


def _run(task: Any, model: Hearing) -> dict[str, Any]:
    scores = run_task(task, model, "dense", lambda _share: None)
    return {"requests": model.heard, "values": [score.value for score in scores]}


if __name__ == "__main__":
    main(*sys.argv[1:])
