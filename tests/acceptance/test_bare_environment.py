"""A checkpoint in an environment with torch and transformers and nothing of ours."""

import json
import re
import subprocess
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from ghosted_core import load_patched
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from tests.jobs import tiny_spec

SCRIPT = """
import importlib.util, json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = sys.argv[1]
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
tokens = torch.arange(3, 40)[None]
with torch.no_grad():
    logits = model(tokens).logits[0, -1].tolist()
text = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)("The fox", return_tensors="pt")
model.generate(**text, max_new_tokens=4, do_sample=False, temperature=None)
ours = [name for name in ("ghosted_core", "ghosted_cli", "pyarrow") if importlib.util.find_spec(name)]
print(json.dumps({"logits": logits, "ours": ours}))
"""


def closure(*names: str) -> dict[str, Distribution]:
    """The installed distributions that `names` require, themselves included, extras left out."""
    found: dict[str, Distribution] = {}
    pending = list(names)
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        try:
            found.setdefault(name, distribution(name))
        except PackageNotFoundError:
            continue
        for line in found[name].requires or ():
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and re.sub(r"[-_.]+", "-", requirement.name).lower() not in found:
                pending.append(requirement.name)
    return found


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own: links to torch, transformers and what they require."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in closure("torch", "transformers").values():
        tops = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
        for name in tops:
            target = Path(str(package.locate_file(name)))
            if target.exists() and not (site / name).exists():
                (site / name).symlink_to(target)
    return folder / "bin" / "python"


def test_it_loads_with_trust_remote_code_alone(
    bare_python: Path, tiny_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    """Same logits as the library's loader, and generation works, where none of our packages is."""
    options = RunOptions(out=tmp_path / "out", cache=tmp_path)
    path = compress(tiny_spec(tiny_folder, text_file, remove=[0, 2, 5]), options, NullRecorder()).path
    finished = subprocess.run(
        [bare_python, "-I", "-c", SCRIPT, path],
        capture_output=True,
        text=True,
        check=False,
        env={"HF_HOME": str(tmp_path / "hf"), "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    expected = load_patched(path)(torch.arange(3, 40)[None]).logits[0, -1].tolist()
    assert document["ours"] == []
    assert document["logits"] == pytest.approx(expected, abs=1e-6)
