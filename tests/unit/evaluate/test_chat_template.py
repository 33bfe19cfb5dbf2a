import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ghosted_core.evaluate import chat_template as module
from ghosted_core.evaluate.chat_template import MODULE, in_chat_template
from ghosted_core.evaluate.chat_template_runner import LONGEST_PROMPT_CHARACTERS, RenderRequest
from tests.asked import check_ends_with_whoever_asked
from tests.tiny import CHAT_TEMPLATE
from tests.tokenizers_made_here import byte_tokenizer

PROMPTS = ["The fox", 'Ünïcode "quotes" </s>\n{{ 1 }}', "The fox"]
# What authors write: special tokens, white space, filters, a clock, words of transformers' own.
WHOLESOME = [
    CHAT_TEMPLATE,
    "{{ bos_token }}{% for m in messages -%} {{ m['content'] | trim }} {%- endfor %}{{ eos_token }}",
    "{% if tools %}no{% endif %}{{ messages | tojson }}{% if add_generation_prompt %}<|model|>{% endif %}",
    "{% generation %}{{ messages[-1].content }}{% endgeneration %}{{ strftime_now('%Y') }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
]
# What each is refused for, by the name of the error.
FAULTS = {
    "{{ messages[0].nothing.more }}": "UndefinedError",
    "{% for": "TemplateSyntaxError",
    "{{ 1 / 0 }}": "ZeroDivisionError",
    "{{ messages[7].content }}": "UndefinedError",
    "{{ raise_exception('no') }}": "TemplateError",
    "{{ ''.__class__.__mro__ }}": "SecurityError",
    "{{ tools | dictsort }}": "AttributeError",
    "{{ none | xmlattr }}": "AttributeError",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}": "RecursionError",
    "{{ 'a' * 10**11 }}": "MemoryError",
    "{{ '\\ud800' }}": "UnicodeEncodeError",
    "{% for a in range(99999) %}{% for b in range(99999) %}"
    + "ab" * 99
    + "{% endfor %}{% endfor %}": "MemoryError",
}

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def rendered(template: Any, prompts: list[str]) -> tuple[list[str | None], list[str]]:
    tokenizer, said = byte_tokenizer(), list[str]()
    tokenizer.chat_template = template
    return in_chat_template(tokenizer, prompts, said.append), said


@pytest.mark.parametrize("template", WHOLESOME)
def test_a_template_renders_as_its_tokenizer_does(template: str) -> None:
    """Every prompt, to the letter."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    expected = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        for prompt in PROMPTS
    ]
    assert rendered(template, PROMPTS) == (expected, [])


def test_of_several_templates_the_default_is_taken() -> None:
    """As the tokenizer does; without one it has none that can be used."""
    named = {"tool_use": "tools", "default": CHAT_TEMPLATE}
    assert rendered(named, ["Hello"]) == (["<|user|>Hello\n"], [])
    found, said = rendered({"tool_use": "tools", "rag": "documents"}, ["Hello"])
    assert found == [None]
    assert said == ["The model's chat template fails (ValueError); prompts are given as they are."]


@pytest.mark.parametrize(("template", "fault"), FAULTS.items())
def test_a_broken_or_hostile_template_renders_nothing(template: str, fault: str) -> None:
    """The log says so once for all prompts, and quotes nothing of it; this process has not grown by it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, said = rendered(template, PROMPTS)
    assert found == [None] * len(PROMPTS)
    assert said == [f"The model's chat template fails ({fault}); prompts are given as they are."]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_an_endless_template_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded time, and its process is gone."""
    monkeypatch.setattr(module, "LONGEST_SECONDS", 4.0)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    begun = time.monotonic()
    found, said = rendered(ENDLESS, ["Hello"])
    assert found == [None]
    assert said == ["The model's chat template fails (TimeoutExpired); prompts are given as they are."]
    assert time.monotonic() - begun < 15
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_its_process_ends_with_whoever_asked(tmp_path: Path) -> None:
    """However long the template would have gone on."""
    request = RenderRequest(template=ENDLESS, tokens={}, prompts=("Hello",))
    check_ends_with_whoever_asked(MODULE, request, tmp_path, at_work=3)


def test_one_prompt_that_cannot_be_rendered_leaves_the_others() -> None:
    """A template may fail for some of them only."""
    most = LONGEST_PROMPT_CHARACTERS
    template = (
        "{{ messages[0].content if messages[0].content == 'a' else messages[0].content * " + f"{most} }}}}"
    )
    found, said = rendered(template, ["a", "bb", "c"])
    assert found == ["a", None, "c" * most]
    assert said == [
        f"The model's chat template makes {2 * most} characters of a prompt, which is given as it is."
    ]


def test_without_a_template_or_a_prompt_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is said."""
    monkeypatch.setattr(subprocess, "Popen", None)
    assert rendered(None, ["Hello"]) == ([None], [])
    assert rendered("", ["Hello"]) == ([None], [])
    assert rendered(CHAT_TEMPLATE, []) == ([], [])
