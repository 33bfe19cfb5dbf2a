from collections.abc import Mapping
from typing import Any

import pytest
from transformers import GenerationConfig

from ghosted_core.evaluate.generation import LONGEST_PROMPT_CHARACTERS, continuations, continue_each
from ghosted_core.testing import tiny_llama
from tests.tiny import CHAT_TEMPLATE
from tests.tokenizers_made_here import byte_tokenizer

FAULTS = [
    "{{ messages[0].nothing.more }}",
    "{% for",
    "{{ 1 / 0 }}",
    "{{ messages[7].content }}",
    "{{ raise_exception('no') }}",
    "{{ ''.__class__.__mro__ }}",
    "",
    f"{{% for _ in range({LONGEST_PROMPT_CHARACTERS}) %}}ab{{% endfor %}}",
]

# What authors want of chats, as Qwen2.5 does, and what would not be greedy, or no single text at all.
WISHES: tuple[Mapping[str, Any], ...] = (
    {"repetition_penalty": 1.5},
    {"no_repeat_ngram_size": 1},
    {"num_beams": 4, "num_return_sequences": 2},
    {"do_sample": True, "temperature": 0.7, "top_k": 20, "num_return_sequences": 2},
    {"suppress_tokens": list(range(32, 300))},
    {"max_length": 9, "min_new_tokens": 2},
)


def test_chat_models_read_their_template() -> None:
    """The continuation is that of the rendered prompt, and says so."""
    model, tokenizer = tiny_llama(), byte_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    (templated,) = continue_each(model, tokenizer, ["Hello"], 6)
    (plain,) = continue_each(model, tokenizer, ["<|user|>Hello\n"], 6, template="none")
    assert templated.templated
    assert templated.tokens == plain.tokens
    assert not plain.templated
    assert len(plain.tokens) == 6


def test_without_a_template_the_prompt_is_the_prompt() -> None:
    """As with template none."""
    model, tokenizer = tiny_llama(), byte_tokenizer()
    (found,) = continue_each(model, tokenizer, ["Hello"], 6)
    assert not found.templated
    assert {found.prompt: found.text} == continuations(model, tokenizer, ["Hello"], 6)


@pytest.mark.parametrize("template", FAULTS)
def test_a_broken_or_hostile_template_costs_only_itself(template: str) -> None:
    """The prompt stands as it is; the log says that the template fails, and quotes nothing of it."""
    model, tokenizer = tiny_llama(), byte_tokenizer()
    tokenizer.chat_template = template
    said: list[str] = []
    (found,) = continue_each(model, tokenizer, ["Hello"], 3, log=said.append)
    assert not found.templated
    assert {found.prompt: found.text} == continuations(model, tokenizer, ["Hello"], 3)
    assert len(said) == (1 if template else 0)


@pytest.mark.parametrize(
    "wishes", [*WISHES, {name: value for wish in WISHES for name, value in wish.items()}]
)
def test_greedy_is_greedy_whatever_the_author_of_the_model_wants(wishes: Mapping[str, Any]) -> None:
    """The continuation is that of a model without such wishes, which are what they were afterwards."""
    tokenizer = byte_tokenizer()
    model, other = tiny_llama(), tiny_llama()
    other.generation_config = own = GenerationConfig(**wishes)
    before = own.to_dict()
    expected = continue_each(model, tokenizer, ["The fox"], 8)
    assert continue_each(other, tokenizer, ["The fox"], 8) == expected
    assert other.generation_config is own
    assert own.to_dict() == before


@pytest.mark.parametrize("ends", [int, lambda last: [319, last]], ids=["one", "several"])
def test_a_text_ends_where_the_model_ends_it(ends: Any) -> None:
    """With the first of the tokens that its author has for that."""
    model, tokenizer = tiny_llama(), byte_tokenizer()
    (whole,) = continue_each(model, tokenizer, ["The fox"], 12)
    last = whole.tokens[4]
    model.generation_config.eos_token_id = ends(last)
    (found,) = continue_each(model, tokenizer, ["The fox"], 12)
    assert found.tokens == whole.tokens[: whole.tokens.index(last) + 1]


def test_a_model_that_breaks_keeps_its_settings() -> None:
    """Those that its author gave it."""
    model = tiny_llama()
    own = model.generation_config
    model.model.layers[0].register_forward_pre_hook(_raise)
    with pytest.raises(RuntimeError):
        continue_each(model, byte_tokenizer(), ["The fox"], 3)
    assert model.generation_config is own


def _raise(*_: Any) -> None:
    raise RuntimeError
