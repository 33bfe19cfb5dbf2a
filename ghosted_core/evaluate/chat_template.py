"""Prompts in a model's chat template, rendered in a process of their own: templates are foreign programs."""

import subprocess
from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from ghosted_core.evaluate.asking import ask
from ghosted_core.evaluate.chat_template_runner import ANSWER_BYTES, Answer, Rendered, RenderRequest

MODULE = "ghosted_core.evaluate.chat_template_runner"
# Start included, which is a second of work.
LONGEST_SECONDS = 60.0


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
    said = ask(MODULE, request, seconds=LONGEST_SECONDS, longest_bytes=ANSWER_BYTES)
    answer = Answer.model_validate_json(said)
    if len(answer.prompts) != len(prompts):
        raise ValueError("The process answered something else.")
    return answer.prompts
