"""A few words from the model: perplexity hides what generation shows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core.errors import InvalidSpecError
from ghosted_core.evaluate.chat_template import in_chat_template

Template = Literal["auto", "none"]


@dataclass(frozen=True)
class Prompt:
    """What a model reads of a text; `templated` says whether it went through the model's chat template."""

    text: str
    tokens: tuple[int, ...]
    templated: bool


@dataclass(frozen=True)
class Continuation:
    """What a model goes on with: new tokens, and their text without special tokens.

    `read` are the tokens of the prompt, `templated` says whether it went through the model's chat template.
    """

    prompt: str
    read: tuple[int, ...]
    text: str
    tokens: tuple[int, ...]
    templated: bool


def continuations(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], new_tokens: int
) -> dict[str, str]:
    """For each prompt as it is, the text of the greedy continuation of at most `new_tokens` tokens.

    Raises:
        InvalidSpecError: the model cannot read one.
    """
    read = [_prompt(tokenizer, text, None) for text in prompts]
    for obstacle in filter(None, (_obstacle(model, prompt, new_tokens) for prompt in read)):
        raise InvalidSpecError(f"A prompt cannot be continued: {obstacle}.")
    return {prompt.text: continue_prompt(model, tokenizer, prompt, new_tokens).text for prompt in read}


def continue_each(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    new_tokens: int,
    *,
    template: Template = "auto",
    log: Callable[[str], None] = lambda _: None,
) -> list[Continuation]:
    """The greedy continuations of `prompts_for` one model, of at most `new_tokens` tokens."""
    read = prompts_for(model, tokenizer, prompts, new_tokens, template=template, log=log)
    return [continue_prompt(model, tokenizer, prompt, new_tokens) for prompt in read]


def prompts_for(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    new_tokens: int,
    *,
    template: Template = "auto",
    log: Callable[[str], None] = lambda _: None,
) -> list[Prompt]:
    """What `model`, and those that are made of it, read of `texts` before `new_tokens` more.

    With `template` auto, texts for a model with a chat template are what its user says first; a template
    that fails is logged, and the text stands as it is. One that the model cannot read is logged and left
    out.
    """
    rendered = in_chat_template(tokenizer, texts, log) if template == "auto" else [None] * len(texts)
    found = []
    for prompt in (_prompt(tokenizer, *both) for both in zip(texts, rendered, strict=True)):
        obstacle = _obstacle(model, prompt, new_tokens)
        if obstacle is None:
            found.append(prompt)
        else:
            log(f"A prompt is left out: {obstacle}.")
    return found


@torch.no_grad()
def continue_prompt(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, new_tokens: int
) -> Continuation:
    """The greedy continuation of `prompt`, of at most `new_tokens` tokens."""
    read = torch.tensor([prompt.tokens], device=model.device)
    with _greedy(model, tokenizer.pad_token_id or 0, new_tokens) as greedy:
        output = model.generate(  # type: ignore[operator]
            input_ids=read, attention_mask=torch.ones_like(read), generation_config=greedy
        )
    tokens = output[0, read.shape[1] :].tolist()
    text = str(tokenizer.decode(tokens, skip_special_tokens=True))
    return Continuation(prompt.text, prompt.tokens, text, tuple(tokens), prompt.templated)


def _prompt(tokenizer: PreTrainedTokenizerBase, text: str, rendered: str | None) -> Prompt:
    # A rendered prompt has its special tokens already.
    read, special = (text, True) if rendered is None else (rendered, False)
    tokens = tokenizer(read, add_special_tokens=special)["input_ids"]
    return Prompt(text, tuple(tokens), rendered is not None)


def _obstacle(model: PreTrainedModel, prompt: Prompt, new_tokens: int) -> str | None:
    """Why `model` cannot read the prompt and go on by `new_tokens`; None if it can.

    It would be an error within the model, after which nothing runs on a GPU any more.
    """
    config = model.config.get_text_config()
    limit, length = getattr(config, "max_position_embeddings", None), len(prompt.tokens)
    if not prompt.tokens:
        return "it has no tokens"
    if max(prompt.tokens) >= config.vocab_size:
        return f"it has a token beyond the {config.vocab_size} that the model knows"
    if limit and length + new_tokens > limit:
        return f"{length} tokens and {new_tokens} new ones are more than the {limit} that the model reads"
    return None


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
