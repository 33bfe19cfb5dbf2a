from collections.abc import Mapping
from typing import Any

import pytest
from transformers import GenerationConfig

from ghosted_core.errors import InvalidSpecError
from ghosted_core.evaluate.generation import continuations, continue_each
from ghosted_core.testing import tiny_llama, tiny_model
from tests.tiny import CHAT_TEMPLATE
from tests.tokenizers_made_here import byte_tokenizer

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


@pytest.mark.parametrize("template", ["{{ tools | dictsort }}", "{{ 'a' * 10**11 }}", "", None])
def test_a_broken_or_hostile_template_costs_only_itself(template: str | None) -> None:
    """The prompt stands as it is; the log says that the template fails."""
    model, tokenizer = tiny_llama(), byte_tokenizer()
    tokenizer.chat_template = template
    said: list[str] = []
    (found,) = continue_each(model, tokenizer, ["Hello"], 3, log=said.append)
    assert not found.templated
    assert {found.prompt: found.text} == continuations(model, tokenizer, ["Hello"], 3)
    assert len(said) == (1 if template else 0)


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama"])
def test_a_prompt_that_leaves_no_room_is_left_out(family: str) -> None:
    """The log says so; one that just fits is continued, beside it."""
    model, tokenizer = tiny_model(family, 2), byte_tokenizer()
    said: list[str] = []
    fitting, long = "a" * 250, "b" * 251
    (found,) = continue_each(model, tokenizer, [long, fitting], 6, log=said.append)
    assert found.prompt == fitting
    assert said == [
        "A prompt is left out: 251 tokens and 6 new ones are more than the 256 that the model reads."
    ]


def test_a_template_counts_towards_the_room() -> None:
    """What the model reads is the rendered prompt."""
    model, tokenizer = tiny_model("gpt2", 2), byte_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    said: list[str] = []
    assert continue_each(model, tokenizer, ["a" * 250], 6, log=said.append) == []
    assert len(said) == 1
    assert len(continue_each(model, tokenizer, ["a" * 250], 6, template="none")) == 1


def test_tokens_that_the_model_has_no_embedding_for_are_not_given_to_it() -> None:
    """A tokenizer may have more of them than the model."""
    model, tokenizer = tiny_model("gpt2", 2), byte_tokenizer()
    tokenizer.add_tokens([f"<extra {index}>" for index in range(70)])
    said: list[str] = []
    assert continue_each(model, tokenizer, ["Hello <extra 69>"], 6, log=said.append) == []
    assert said == ["A prompt is left out: it has a token beyond the 320 that the model knows."]


def test_nothing_is_no_prompt() -> None:
    """A text may have no tokens."""
    said: list[str] = []
    assert continue_each(tiny_llama(2), byte_tokenizer(), [""], 6, log=said.append) == []
    assert said == ["A prompt is left out: it has no tokens."]


def test_who_asks_for_a_continuation_hears_that_there_is_none() -> None:
    """Prompts of a checkpoint that is verified are not left out."""
    with pytest.raises(InvalidSpecError, match="more than the 256"):
        continuations(tiny_model("gpt2", 2), byte_tokenizer(), ["Hello", "a" * 300], 6)


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
