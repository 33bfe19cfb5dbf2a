"""The whole way through the service, as a user goes it: POST, watch, pull, load, generate."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ghosted_client import Client, Event
from ghosted_client.errors import ApiError
from ghosted_core import load_patched
from ghosted_core.testing import tiny_llama
from services.embedded import remove_stack
from tests.acceptance.service_process import RunningService, service
from tests.hub_double import Repository, running_hub
from tests.tiny import save_tiny_model

pytestmark = pytest.mark.real  # The text is that of the demo, from inside its wheel.
SMALL = {"sequences": 6, "sequence_length": 128, "held_out_sequences": 1}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, real_cache: Path) -> Iterator[RunningService]:
    """A service whose Hub is a double with one tiny Llama, owner/tiny."""
    folder = save_tiny_model(tiny_llama(), tmp_path_factory.mktemp("repository") / "tiny")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    data = tmp_path_factory.mktemp("service") / "data"
    with (
        running_hub({"owner/tiny": Repository(files)}) as hub,
        service(data, real_cache, HF_ENDPOINT=hub.endpoint) as started,
    ):
        yield started
    remove_stack(data)


def test_from_post_to_generated_text(running: RunningService, tmp_path: Path) -> None:
    """The commands alone: submit and watch, pull, verify; the folder loads and continues a text."""
    options = "--layers 2 --sequences 6 --sequence-length 128 --windows 2 --wait --json"
    submitted = running.command("submit", "owner/tiny", *options.split())
    job = json.loads(submitted.stdout)
    assert (submitted.returncode, job["state"]) == (0, "succeeded"), submitted.stderr
    pulled = running.command("pull", job["id"], str(tmp_path / "out"), "--json")
    assert pulled.returncode == 0, pulled.stderr
    verified = running.command("verify", str(tmp_path / "out"), "--prompt", "The fox", "--json")
    assert json.loads(verified.stdout)["verified"] is True
    model = load_patched(tmp_path / "out")
    tokens = torch.arange(3, 20)[None]
    assert model.generate(tokens, max_new_tokens=4, do_sample=False, temperature=None).shape == (1, 21)
    assert model.config.num_hidden_layers == 4


def test_the_record_of_a_job_is_complete(running: RunningService) -> None:
    """Every stage, upload and verification among them, and the figures beside each other."""
    spec = {"model": "owner/tiny", "layers": 1, "calibration": SMALL, "evaluation": {"windows": 2}}
    with Client(running.url, running.key) as client:
        job = client.submit(spec, labels={"purpose": "test"})
        events: list[Event] = []
        ended = client.wait(job.id, on_event=events.append, timeout_seconds=120)
        metrics = {metric.name: metric.value for metric in client.metrics(job.id)}
        artifact = client.artifact(job.id)
    assert ended.state == "succeeded"
    assert ended.labels == {"purpose": "test"}
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    stages = [event.payload["stage"] for event in events if event.type == "stage_finished"]
    assert stages == [
        "load", "score", "calibrate", "solve", "patch", "evaluate", "evaluate", "save", "upload",
        "verify",
    ]  # fmt: skip
    assert set(metrics) >= {"perplexity_dense", "perplexity_pruned", "perplexity_repaired"}
    assert {"config.json", "model.safetensors", "ghosted.json"} <= {file.path for file in artifact.files}


def test_what_a_job_chose_is_told_before_the_next(running: RunningService) -> None:
    """Validation names the layers once a job has looked at the same model and text, whatever else differs."""
    spec = {"model": "owner/tiny", "layers": 2, "calibration": {**SMALL, "seed": 7}, "evaluation": None}
    with Client(running.url, running.key) as client:
        assert client.validate(spec).removed is None
        job = client.submit(spec)
        assert client.wait(job.id, timeout_seconds=120).state == "succeeded"
        (chosen,) = [event for event in client.events(job.id) if event.type == "layers_chosen"]
        told = client.validate({**spec, "recovery": "none"})
    assert (told.from_earlier, told.removed) == (True, tuple(chosen.payload["removed"]))


def test_a_job_that_cannot_work_says_why(running: RunningService) -> None:
    """`failed` with a stable code, the stage and what to try; not retried."""
    spec = {"model": "owner/tiny", "layers": 1, "calibration": {**SMALL, "sequences": 20000}}
    with Client(running.url, running.key) as client:
        job = client.submit(spec)
        failure = client.wait(job.id, timeout_seconds=120).failure
    assert failure is not None
    assert (failure.code, failure.retryable, failure.attempt) == ("too_few_tokens", False, 1)
    assert failure.advice


@pytest.mark.parametrize(
    ("change", "code"), [({"model": "owner/typo"}, "model_not_found"), ({"layers": 6}, "invalid_spec")]
)
def test_what_the_hub_tells_is_told_at_once(
    running: RunningService, change: dict[str, Any], code: str
) -> None:
    """The Hub is asked when the job is submitted: nothing is queued, and the refusal says why."""
    with Client(running.url, running.key) as client:
        with pytest.raises(ApiError) as caught:
            client.submit({"model": "owner/tiny", "layers": 1, "calibration": SMALL, **change})
        assert caught.value.problem.code == code


def test_a_running_job_is_cancelled(running: RunningService) -> None:
    """`ghosted cancel` ends it within seconds, and there is nothing to fetch."""
    long = {**SMALL, "sequences": 1500}
    with Client(running.url, running.key) as client:
        job = client.submit({"model": "owner/tiny", "layers": 1, "calibration": long})
        for event in client.events(job.id, follow=True):
            if event.type == "stage_started" and event.payload["stage"] == "score":
                assert running.command("cancel", str(job.id)).returncode == 0
        assert client.get(job.id).state == "cancelled"
    assert running.command("pull", str(job.id), "nowhere").returncode == 10


def test_the_real_model_goes_the_whole_way(running: RunningService, tmp_path: Path) -> None:
    """SmolLM2-135M loses 7 layers; the repair heals most of the damage, and the artifact speaks."""
    spec = {
        "model": "smollm2-135m-instruct",
        "layers": 7,
        "calibration": {"sequences": 40, "sequence_length": 256, "held_out_sequences": 2},
        "evaluation": {
            "windows": 6,
            "sequence_length": 256,
            "prompts": ["Water boils when"],
            "new_tokens": 8,
        },
    }
    with Client(running.url, running.key) as client:
        job = client.submit(spec)
        job = client.wait(job.id, timeout_seconds=900)
        assert job.state == "succeeded", job.failure
        client.pull(job.id, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "ghosted.json").read_text())
    assert manifest["source"]["layer_count"] == 30
    assert manifest["metrics"]["damage_ratio"] <= 0.65
    assert running.command("verify", str(tmp_path / "out")).returncode == 0
