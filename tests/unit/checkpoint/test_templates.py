"""A chat template is a program of the model's author: it is carried along and never run."""

import json
import re
import shutil
from pathlib import Path

import pytest

import ghosted_core
from ghosted_core.catalog import builtin_catalog
from ghosted_core.checkpoint.load import copy_source_files, load_tokenizer
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.data import token_windows
from ghosted_core.documents import read_documents
from ghosted_core.spec import LocalModel, LocalText

ROOT = Path(ghosted_core.__file__).parents[1]
HOSTILE = [
    "{% for i in range(10 ** 12) %}x{% endfor %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('touch /tmp/pwned') }}",
    "{% this is no template",
]


def hostile_source(tiny_folder: Path, folder: Path, template: str) -> ModelSource:
    shutil.copytree(tiny_folder, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
    (folder / "chat_template.jinja").write_text(template)
    return resolve(
        LocalModel(path=str(folder)),
        catalog=builtin_catalog(),
        cache=folder,
        hub_token=None,
        log=lambda _: None,
    )


@pytest.mark.parametrize("template", HOSTILE, ids=["endless", "subclasses", "system", "broken"])
def test_a_hostile_template_is_carried_unrendered(
    tiny_folder: Path, text_file: Path, tmp_path: Path, template: str
) -> None:
    """Loading and calibrating do not touch it, and the copy is byte for byte the source's."""
    source = hostile_source(tiny_folder, tmp_path / "model", template)
    tokenizer = load_tokenizer(source)
    documents = read_documents(
        LocalText(path=str(text_file)), catalog=builtin_catalog(), cache=tmp_path, log=lambda _: None
    )
    windows = token_windows(
        documents, tokenizer, length=16, count=2, seed=0, part="all", vocab_size=len(tokenizer)
    )
    assert windows.tokens.shape == (2, 16)
    (tmp_path / "out").mkdir()
    copy_source_files(source, tmp_path / "out")
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (source.path / name).read_bytes()


def test_one_place_alone_renders_templates() -> None:
    """In a process of its own, through the sandbox of transformers; service and supervisor never do."""
    found = {
        file.relative_to(ROOT).as_posix()
        for package in ("ghosted_core", "services", "worker", "ghosted_cli", "ghosted_client")
        for file in (ROOT / package).rglob("*.py")
        if re.search(r"\.apply_chat_template|render_jinja_template", file.read_text())
    }
    assert found == {"ghosted_core/evaluate/chat_template_runner.py"}
