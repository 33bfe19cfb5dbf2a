"""Code that loads and serves a checkpoint, as the model card and the API show it. Free of torch.

A test runs each of these texts as it stands, in a folder where `artifact` holds a checkpoint. What
cannot be run there (an image's way through a server, say) has no text here.
"""

from dataclasses import dataclass
from typing import Literal

# The file that comes with operators: without it, the checkpoint is of a stock class.
OPERATOR_CODE = "modeling_ghosted.py"
# How the texts call the folder that the checkpoint was pulled into.
FOLDER = "artifact"
# Not 8000, where a service of ours may answer.
PORT = 8001

_GENERATE = f"""\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{FOLDER}")
tokenizer = AutoTokenizer.from_pretrained("{FOLDER}")
inputs = tokenizer("Water boils when", return_tensors="pt")
tokens = model.generate(**inputs, max_new_tokens=20)
print(tokenizer.decode(tokens[0], skip_special_tokens=True))
"""
_GENERATE_TRUSTING = f"""\
from transformers import AutoModelForCausalLM, AutoTokenizer

# The operators at the cuts live in {OPERATOR_CODE} of the folder, hence trust_remote_code.
model = AutoModelForCausalLM.from_pretrained("{FOLDER}", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("{FOLDER}", trust_remote_code=True)
inputs = tokenizer("Water boils when", return_tensors="pt")
tokens = model.generate(**inputs, max_new_tokens=20)
print(tokenizer.decode(tokens[0], skip_special_tokens=True))
"""
_CHECKED = f"""\
from ghosted_core import load_patched

# Every file is compared with the manifest first, and no code of the folder runs.
model = load_patched("{FOLDER}")
"""
_SERVE = f"""\
transformers serve {FOLDER} --port {PORT}
"""
_SERVE_TRUSTING = f"""\
import sys

import transformers
from transformers import AutoConfig
from transformers.cli.transformers import main
from transformers.dynamic_module_utils import get_class_from_dynamic_module

# `transformers serve` looks for the model's class among its own only.
name = AutoConfig.from_pretrained("{FOLDER}", trust_remote_code=True).architectures[0]
model = get_class_from_dynamic_module(f"{OPERATOR_CODE.removesuffix(".py")}.{{name}}", "{FOLDER}")
setattr(transformers, name, model)
sys.argv = ["transformers", "serve", "{FOLDER}", "--trust-remote-code", "--port", "{PORT}"]
main()
"""
_ASK = f"""\
from openai import OpenAI

client = OpenAI(base_url="http://localhost:{PORT}/v1", api_key="none")
answer = client.completions.create(model="{FOLDER}", prompt="Water boils when", max_tokens=20)
print(answer.choices[0].text)
"""


@dataclass(frozen=True)
class Snippet:
    """A text to run: what it does, in which language, and what has to be installed."""

    purpose: Literal["generate", "load", "serve", "ask"]
    title: str
    language: Literal["python", "shell"]
    requires: tuple[str, ...]
    code: str


_TORCH = ("torch", "transformers>=5.2.1,<6")
_SERVING = ("torch", "transformers[serving]>=5.2.1,<6")
_LOADING = Snippet("load", "With Ghosted, which checks all files", "python", ("ghosted[local]",), _CHECKED)
_ASKING = Snippet("ask", "Ask that server", "python", ("openai",), _ASK)
_STOCK = (
    Snippet("generate", "Load and generate", "python", _TORCH, _GENERATE),
    _LOADING,
    Snippet("serve", "Serve, in the manner of OpenAI's API", "shell", _SERVING, _SERVE),
    _ASKING,
)
_TRUSTING = (
    Snippet("generate", "Load and generate", "python", _TORCH, _GENERATE_TRUSTING),
    _LOADING,
    Snippet("serve", "Serve, in the manner of OpenAI's API", "python", _SERVING, _SERVE_TRUSTING),
    _ASKING,
)


def snippets(*, operators: bool, images: bool = False) -> tuple[Snippet, ...]:
    """What loads and serves a checkpoint, with operators or of a stock class, in the folder around it."""
    found = _TRUSTING if operators else _STOCK
    return tuple(one for one in found if one.purpose in {"generate", "load"} or not images)


def sees_images(architecture: str) -> bool:
    """Whether a model of that class has a vision tower too."""
    return architecture.endswith("ForConditionalGeneration")


def as_markdown(found: tuple[Snippet, ...]) -> str:
    """The texts one after another, each under its title."""
    parts = [f"{one.title} (`{'`, `'.join(one.requires)}`):\n\n{_fenced(one)}" for one in found]
    return "\n\n".join([f"Below, `{FOLDER}` is this folder.", *parts])


def _fenced(one: Snippet) -> str:
    return f"```{one.language}\n{one.code}```"
