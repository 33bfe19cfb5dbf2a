"""The process that renders chat templates: `python -m ghosted_core.evaluate.chat_template_runner`.

A template is a program of the model's author. The sandbox bounds what it reaches, this process what it takes.
"""

import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from pydantic import Field
from transformers.utils.chat_template_utils import render_jinja_template

from ghosted_core.evaluate.child import REQUEST, end_with, own_stdin, own_stdout
from ghosted_core.evaluate.task_protocol import Message
from ghosted_core.network import forbid_network

# A prompt that its template blows up to more than this is given to the model as it is.
LONGEST_PROMPT_CHARACTERS = 100_000
# The most that a template may take: on top of what the process has when it begins, in all, and written.
MEMORY_BYTES = 256 << 20
PROCESSOR_SECONDS = 90
ANSWER_BYTES = 32 << 20
# What templates do wrong that Python or jinja notice; whatever else they do ends the process.
FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


class RenderRequest(Message):
    """Each of `prompts` is to be rendered as what a user says first; `tokens` are the special ones."""

    template: str
    tokens: Mapping[str, Any]
    prompts: tuple[str, ...]


class Rendered(Message):
    """What became of a prompt: `text`, or too many `characters` or none, or a `fault` of this kind."""

    text: str | None = Field(default=None, min_length=1, max_length=LONGEST_PROMPT_CHARACTERS)
    characters: int = 0
    fault: str = Field(default="", max_length=100)


class Answer(Message):
    """What became of each prompt."""

    prompts: tuple[Rendered, ...]


def render(request: RenderRequest, prompt: str) -> Rendered:
    """As `apply_chat_template` of the tokenizer renders it."""
    said = [{"role": "user", "content": prompt}]
    try:
        # Texts and where generated tokens lie in them, though it is annotated otherwise.
        found: Any = render_jinja_template(
            conversations=[said], chat_template=request.template, add_generation_prompt=True, **request.tokens
        )
        (text,), _ = found
        # Half of a pair of surrogates is no text.
        text.encode()
    except FAULTS as error:
        return Rendered(fault=type(error).__name__)
    can_be_read = 0 < len(text) <= LONGEST_PROMPT_CHARACTERS
    return Rendered(text=text if can_be_read else None, characters=len(text))


def bound() -> None:
    """From now on this process takes no more memory, time and disk than a template may."""
    if sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, taken + MEMORY_BYTES)
    _limit(resource.RLIMIT_CPU, PROCESSOR_SECONDS)
    _limit(resource.RLIMIT_FSIZE, ANSWER_BYTES)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(kind: int, most: int) -> None:
    """At most `most`; a lower limit that there is already stays."""
    there = [limit for limit in resource.getrlimit(kind) if limit != resource.RLIM_INFINITY]
    limit = min([most, *there])
    resource.setrlimit(kind, (limit, limit))


def main() -> None:
    """Render what the working folder's request asks for, as long as stdin is open."""
    forbid_network()
    out = own_stdout()
    end_with(own_stdin())
    request = RenderRequest.model_validate_json(Path(REQUEST).read_bytes())
    bound()
    answer = Answer(prompts=tuple(render(request, prompt) for prompt in request.prompts))
    out.write(answer.model_dump_json())
    out.flush()


if __name__ == "__main__":
    main()
