"""A few words from the model: perplexity hides what generation shows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from jinja2 import TemplateError
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

Template = Literal["auto", "none"]
# A prompt that its template blows up to more than this is given to the model as it is.
LONGEST_PROMPT_CHARACTERS = 100_000


@dataclass(frozen=True)
class Continuation:
    """What a model goes on with: new tokens, and their text without special tokens.

    `templated` says whether the prompt went through the model's chat template.
    """

    prompt: str
    text: str
    tokens: tuple[int, ...]
    templated: bool


@torch.no_grad()
def continuations(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], new_tokens: int
) -> dict[str, str]:
    """For each prompt as it is, the text of the greedy continuation of at most `new_tokens` tokens."""
    found = continue_each(model, tokenizer, prompts, new_tokens, template="none")
    return {continuation.prompt: continuation.text for continuation in found}


@torch.no_grad()
def continue_each(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    new_tokens: int,
    *,
    template: Template = "auto",
    log: Callable[[str], None] = lambda _: None,
) -> list[Continuation]:
    """For each prompt, the greedy continuation of at most `new_tokens` tokens.

    With `template` auto, prompts of a model with a chat template are what its user says first; a
    template that fails is logged, and the prompt stands as it is.
    """
    found = []
    for prompt in prompts:
        rendered = _rendered(tokenizer, prompt, log) if template == "auto" else None
        tokens = _continue(model, tokenizer, prompt, rendered, new_tokens)
        text = str(tokenizer.decode(tokens, skip_special_tokens=True))
        found.append(Continuation(prompt, text, tuple(tokens), rendered is not None))
    return found


def _rendered(tokenizer: PreTrainedTokenizerBase, prompt: str, log: Callable[[str], None]) -> str | None:
    """The prompt in the model's chat template, None where there is none that can be used."""
    if not tokenizer.chat_template:
        return None
    messages = [{"role": "user", "content": prompt}]
    try:
        # transformers renders in a sandbox; the template is the model's, so its words are not ours.
        text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except (TemplateError, ValueError, TypeError, ArithmeticError, LookupError) as error:
        log(f"The model's chat template fails ({type(error).__name__}); prompts are given as they are.")
        return None
    if not text or len(text) > LONGEST_PROMPT_CHARACTERS:
        log(f"The model's chat template makes {len(text)} characters of a prompt, which is given as it is.")
        return None
    return text


def _continue(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    rendered: str | None,
    new_tokens: int,
) -> list[int]:
    # A rendered prompt has its special tokens already.
    text, special = (prompt, True) if rendered is None else (rendered, False)
    encoded = tokenizer(text, return_tensors="pt", add_special_tokens=special).to(model.device)
    with _greedy(model, tokenizer.pad_token_id or 0, new_tokens) as greedy:
        output = model.generate(  # type: ignore[operator]
            input_ids=encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            generation_config=greedy,
        )
    return list(output[0, encoded["input_ids"].shape[1] :].tolist())


@contextmanager
def _greedy(model: PreTrainedModel, pad: int, new_tokens: int) -> Iterator[GenerationConfig]:
    """Settings by which `model` takes the likeliest token each time, up to one that ends its texts.

    Meanwhile they are the model's own: what a call leaves open, transformers takes from those, and the
    authors of many models want repetitions punished, several beams or several answers.
    """
    own = model.generation_config
    greedy = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False,
        max_new_tokens=new_tokens,
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id,
        pad_token_id=pad,
    )
    model.generation_config = greedy
    try:
        yield greedy
    finally:
        model.generation_config = own
