import pytest

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
