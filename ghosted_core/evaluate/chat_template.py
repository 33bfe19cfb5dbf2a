"""Prompts in a model's chat template, rendered in a process of their own: templates are foreign programs."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers import PreTrainedTokenizerBase

from ghosted_core.evaluate.chat_template_runner import ANSWER_BYTES, REQUEST, Answer, Rendered, RenderRequest
from ghosted_core.evaluate.tasks import task_environment

MODULE = "ghosted_core.evaluate.chat_template_runner"
# Start included, which is a second of work.
LONGEST_SECONDS = 60


def in_chat_template(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], log: Callable[[str], None]
) -> list[str | None]:
    """Each of `prompts` as what a user of the model says first, special tokens included.

    None: the model has no chat template, or none that can be used, which is logged. Whatever a template
    does, it does to a short-lived process without credentials, with bounds on its memory and its time.
    """
    if not prompts or not tokenizer.chat_template:
        return [None] * len(prompts)
    try:
        found = _render(tokenizer, prompts)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        found = [Rendered(fault=type(error).__name__)] * len(prompts)
    for complaint in dict.fromkeys(_complaint(one) for one in found if one.text is None):
        log(complaint)
    return [one.text for one in found]


def _complaint(found: Rendered) -> str:
    if found.fault:
        return f"The model's chat template fails ({found.fault}); prompts are given as they are."
    return (
        f"The model's chat template makes {found.characters} characters of a prompt, which is given as it is."
    )


def _render(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> Sequence[Rendered]:
    request = RenderRequest(
        template=tokenizer.get_chat_template(), tokens=tokenizer.special_tokens_map, prompts=tuple(prompts)
    )
    answer = Answer.model_validate_json(_ask(request))
    if len(answer.prompts) != len(prompts):
        raise ValueError("The process answered something else.")
    return answer.prompts


def _ask(request: RenderRequest) -> bytes:
    with TemporaryDirectory(prefix="ghosted-template-") as name, (Path(name) / "answer").open("w+b") as said:
        folder = Path(name)
        (folder / REQUEST).write_text(request.model_dump_json(), encoding="utf-8")
        with subprocess.Popen(
            # -P: nothing in the working folder may be imported.
            [sys.executable, "-P", "-m", MODULE],
            cwd=folder,
            env=task_environment(os.environ, folder),
            # Nothing is said through it: when this end closes, however, the process ends.
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                code = process.wait(LONGEST_SECONDS)
            finally:
                process.kill()
        if code:
            raise subprocess.CalledProcessError(code, MODULE)
        said.seek(0)
        return said.read(ANSWER_BYTES)
