"""The process that runs benchmark tasks: `python -m ghosted_core.evaluate.task_runner`.

It has its own process because the harness keeps globals, prints, and may crash.
"""

import sys
from typing import IO

from ghosted_core.errors import GhostedError, HarnessMissingError
from ghosted_core.evaluate.child import end_with, own_stdin, own_stdout
from ghosted_core.evaluate.task_protocol import Known, Message, Progress, Ready, Refused, TaskRequest
from ghosted_core.network import forbid_network


class Pipe:
    """The way back: JSON lines that nothing else can write between."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def say(self, message: Message) -> None:
        """Write it as a line, at once."""
        self._stream.write(message.model_dump_json() + "\n")
        self._stream.flush()


def main() -> int:
    """Do what the first line of stdin asks; 0 if it was done, or could not be and was said to be so."""
    # Tasks may bring modules that fetch when they are imported.
    forbid_network()
    asked, pipe = own_stdin(), Pipe(own_stdout())
    request = TaskRequest.model_validate_json(asked.readline())
    end_with(asked)
    try:
        _answer(request, pipe)
    except GhostedError as error:
        pipe.say(Refused(code=error.code, message=error.message, advice=error.hint))
    return 0


def _answer(request: TaskRequest, pipe: Pipe) -> None:
    try:
        import lm_eval  # noqa: F401
    except ImportError as error:
        raise HarnessMissingError("Benchmark tasks need lm-evaluation-harness.") from error
    # Only now: they import the harness.
    from ghosted_core.evaluate.harness import BoundedModel, load_tasks, run_task
    from ghosted_core.evaluate.task_subjects import load_subject

    tasks = load_tasks(request.tasks, request.data)
    if request.subject is None:
        for task in tasks:
            pipe.say(Known(task=task.task.name, metrics=task.metrics))
        return
    subject = request.subject
    pipe.say(Ready(items=sum(task.items for task in tasks) * len(subject.variants)))
    counter = _Counter(pipe)
    models, tokenizer = load_subject(subject)
    for variant, model in models.items():
        bounded = BoundedModel(model, tokenizer, request.logit_bytes)
        for task in tasks:
            for score in run_task(task, bounded, variant, counter.within(task.items)):
                pipe.say(score)
            counter.finish(task.items)


class _Counter:
    """Counts items that are done, and says so when there are more."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._before = self._said = 0

    def within(self, items: int) -> "_Share":
        """Is told of shares of the next `items`."""
        return _Share(self, items)

    def finish(self, items: int) -> None:
        """All of the `items` are done."""
        self._before += items
        self.say(0)

    def say(self, more: int) -> None:
        """`more` items are done of those under way."""
        done = self._before + more
        if done > self._said:
            self._said = done
            self._pipe.say(Progress(done=done))


class _Share:
    def __init__(self, counter: _Counter, items: int) -> None:
        self._counter, self._items = counter, items

    def __call__(self, share: float) -> None:
        self._counter.say(int(share * self._items))


if __name__ == "__main__":
    sys.exit(main())
