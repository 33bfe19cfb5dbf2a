"""The code in the answer about an artifact runs as it stands, on what a pull brings."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from ghosted_client import Artifact, Client, Snippet
from ghosted_core.checkpoint.snippets import PORT
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.recorder import NullRecorder
from ghosted_core.testing import tiny_llama, tiny_model
from services.artifacts.storage import ArtifactStore
from services.db.sessions import Database
from tests.integration.services.finished import finish
from tests.integration.services.helpers import SPEC
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model, write_text
from worker.delivery import describe

ROOT = Path(__file__).parents[3]
# For a machine with everything else to do.
SECONDS = 180
KINDS = {"operators": {}, "stock": {"recovery": "none"}, "images": {"recovery": "none"}}


@pytest.fixture(scope="module", params=list(KINDS))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with operators, one of a stock class, and one that sees images."""
    folder = tmp_path_factory.mktemp(request.param)
    model = tiny_model("gemma3") if request.param == "images" else tiny_llama()
    source = save_tiny_model(model, folder / "source")
    if request.param == "images":
        (source / "preprocessor_config.json").write_text('{"image_size": 32}\n')
    spec = tiny_spec(source, write_text(folder / "text.txt"), remove=[1, 4], evaluation=None)
    spec = spec.model_validate(spec.model_dump() | KINDS[request.param])
    return compress(spec, RunOptions(out=folder / "out", cache=folder), NullRecorder()).path


@pytest.fixture
def artifact(
    checkpoint: Path, client: Client, database: Database, store: ArtifactStore, tmp_path: Path
) -> Artifact:
    """What the API says of it; a pull has brought it into the folder that it names."""
    job = client.submit(SPEC)
    told = describe(checkpoint, lambda: None)
    files = {file.path: (checkpoint / file.path).read_bytes() for file in told.files}
    finish(database, store, job.id, told, files=files)
    found = client.artifact(job.id)
    client.pull(job.id, tmp_path / found.folder)
    return found


def of(artifact: Artifact, purpose: str) -> Snippet | None:
    return next((one for one in artifact.snippets if one.purpose == purpose), None)


def command(snippet: Snippet, port: int = PORT) -> list[str]:
    """How a person runs it; what is not of this environment is none of its business."""
    code = snippet.code.replace(str(PORT), str(port))
    return [sys.executable, "-c", code] if snippet.language == "python" else ["/bin/sh", "-c", f"exec {code}"]


def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }


def run(snippet: Snippet, tmp_path: Path, port: int = PORT) -> str:
    """What it prints, run where the pulled folder lies."""
    done = subprocess.run(
        command(snippet, port),
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_loads_and_generates(artifact: Artifact, tmp_path: Path) -> None:
    """In a process of its own, with what every reader of checkpoints has."""
    generate = of(artifact, "generate")
    assert generate is not None
    assert run(generate, tmp_path).startswith("Water boils when")


@pytest.mark.parametrize("checkpoint", ["operators"], indirect=True)
def test_the_library_loads_it(artifact: Artifact, tmp_path: Path) -> None:
    """In a process of its own; the text is the same whatever the checkpoint is."""
    load = of(artifact, "load")
    assert load is not None
    assert run(load, tmp_path) == ""


@contextmanager
def serving(snippet: Snippet, tmp_path: Path) -> Iterator[int]:
    """The server that the snippet starts, on a free port in place of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "server.log").open("w+") as log:
        server = subprocess.Popen(
            command(snippet, port), cwd=tmp_path, env=environment(tmp_path), stdout=log, stderr=log
        )
        try:
            wait_for(f"http://localhost:{port}/health", server, tmp_path / "server.log")
            yield port
        finally:
            server.kill()
            server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        try:
            if httpx2.get(address).is_success:
                return
        except httpx2.RequestError:
            time.sleep(0.3)
    pytest.fail(f"no server: {log.read_text()}")


def test_it_is_served(artifact: Artifact, checkpoint: Path, tmp_path: Path) -> None:
    """The server answers what asks it; where that was never tried (images), nothing is offered."""
    serve, ask = of(artifact, "serve"), of(artifact, "ask")
    if "images" in checkpoint.parent.name:
        assert serve is ask is None
        return
    assert serve is not None
    assert ask is not None
    with serving(serve, tmp_path) as port:
        assert run(ask, tmp_path, port).endswith("\n")
        assert "POST /v1/completions" in (tmp_path / "server.log").read_text()


def test_the_card_and_the_api_show_the_same(artifact: Artifact, tmp_path: Path) -> None:
    """README.md in the folder holds every snippet of the answer."""
    card = (tmp_path / artifact.folder / "README.md").read_text()
    assert all(one.code in card for one in artifact.snippets)
