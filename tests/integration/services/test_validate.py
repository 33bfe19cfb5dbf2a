"""What a submission would do, told without doing it."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from sqlalchemy import select

from ghosted_cli.working import working
from ghosted_core.preview import preview
from ghosted_core.spec import JobSpec
from ghosted_core.workplace import Workplace
from services.config import Settings
from services.db.models import Job
from services.db.sessions import Database
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server

SMALL = "smollm2-135m-instruct"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

FILES = [{"rfilename": name, "size": 1} for name in ("config.json", "model.safetensors")]
LISTING = json.dumps(
    {"id": "owner/tiny", "sha": COMMIT, "siblings": FILES, "tags": [], "gated": False}
).encode()


@dataclass
class Hub:
    """A Hub of one model, whose answer a test can change."""

    url: str
    content: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pause_seconds: float = 0
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            time.sleep(made.pause_seconds)
            content = LISTING if self.path.startswith("/api/") else made.content
            self.send_response(made.status)
            for name, value in {"X-Repo-Commit": COMMIT, **made.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Hub(f"http://127.0.0.1:{server.server_port}", (tiny_folder / "config.json").read_bytes())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", made.url)
    # What HF_ENDPOINT sets when a process starts.
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", made.url)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def server(server: Server, settings: Settings) -> Iterator[Server]:
    """An API that asks the Hub."""
    with serve(settings.model_copy(update={"resolve_models": True})) as url:
        yield Server(url, server.key)


def validated(server: Server, **body: Any) -> Any:
    return server.request("POST", "/v1/jobs:validate", json=body)


def small(layers: Any = 2, **more: Any) -> dict[str, Any]:
    calibration = {"sequences": 2, "sequence_length": 32, **more.pop("calibration", {})}
    return {"model": "owner/tiny", "layers": layers, "calibration": calibration, **more}


def test_a_known_model_is_foreseen(server: Server, database: Database) -> None:
    """Sizes before and after and the kept layers, within two seconds, and without a job."""
    began = time.monotonic()
    response = validated(server, model=SMALL, strategy={"name": "explicit", "indices": "20-26"})
    taken = time.monotonic() - began
    answer = response.json()
    assert response.status_code == 200, response.text
    assert taken < 2
    # As published: 134.5 million parameters, tied; a layer has 3.54 million.
    assert answer["estimate"]["parameters_before"] == 134_515_008
    assert answer["removed"] == list(range(20, 27))
    assert answer["kept"] == [*range(20), *range(27, 30)]
    layer = 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536 + 2 * 576
    assert answer["estimate"]["parameters_after"] == 134_515_008 - 7 * layer + 576**2
    assert answer["estimate"]["bytes_after"] == 4 * answer["estimate"]["parameters_after"]
    assert answer["warnings"] == []
    with database.read() as session:
        assert session.scalars(select(Job)).all() == []


@pytest.mark.parametrize("strategy", ["reverse", {"name": "explicit", "indices": [1, 3]}])
def test_the_foresight_is_that_of_plan(
    server: Server, hub: Hub, tiny_folder: Path, tmp_path: Path, strategy: Any
) -> None:
    """Without torch the same sizes and needs come out as `plan` finds with the model at hand."""
    body = small(None if isinstance(strategy, dict) else 2, strategy=strategy)
    answer = validated(server, **body).json()
    local = JobSpec.model_validate({**body, "model": {"kind": "local", "path": str(tiny_folder)}})
    with working(tmp_path, "cpu") as place:
        assert isinstance(place, Workplace)
        expected = preview(local, place, tmp_path / "out")
    assert answer["removed"] == list(expected.plan.removed)
    assert answer["kept"] == list(expected.plan.kept)
    found = answer["estimate"]
    assert found["parameters_after"] == expected.estimate.parameters_after
    assert found["memory"]["peak_bytes"] == expected.estimate.memory.peak_bytes
    assert found["disk"]["peak_bytes"] == expected.estimate.disk.peak_bytes
    assert answer["model"]["commit"] == COMMIT


def test_what_needs_a_look_names_its_candidates(server: Server, hub: Hub) -> None:
    """A strategy that measures cannot be foreseen; what it chooses among can."""
    answer = validated(server, **small(2, strategy="streamline")).json()
    assert (answer["removed"], answer["kept"]) == (None, None)
    assert answer["candidates"] == {"kind": "runs", "choices": [1, 2, 3, 4]}
    assert hub.asked[1:] == [f"/owner/tiny/resolve/{COMMIT}/config.json"]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"model": SMALL, "layers": 30}, "invalid_spec", "layers"),
        ({"model": SMALL, "layers": 28, "strategy": "sleb"}, None, None),
        ({"model": SMALL, "layers": 29, "strategy": "sleb"}, "invalid_spec", "layers"),
        (
            {"model": SMALL, "strategy": {"name": "explicit", "indices": [30]}},
            "invalid_spec",
            "strategy.indices",
        ),
        (
            {"model": SMALL, "layers": 2, "calibration": {"sequence_length": 8193}},
            "invalid_spec",
            "calibration.sequence_length",
        ),
        (
            {
                "model": SMALL,
                "layers": 2,
                "evaluation": {"corpora": [{"name": "c4", "sequence_length": 8193}]},
            },
            "invalid_spec",
            "evaluation.corpora.0.sequence_length",
        ),
        (
            {"model": SMALL, "layers": 2, "finetune": {"sequence_length": 8193}},
            "invalid_spec",
            "finetune.sequence_length",
        ),
        ({"model": "no-such", "layers": 2}, "unknown_alias", "model"),
        ({"model": SMALL}, "invalid_request", "body"),
    ],
)
def test_validating_refuses_what_submitting_refuses(
    server: Server, body: dict[str, Any], code: str | None, field: str | None
) -> None:
    """The same problem document, which names the field, or none from both."""
    validation, submission = validated(server, **body), server.submit(body)
    if code is None:
        assert (validation.status_code, submission.status_code) == (200, 202)
        return
    assert validation.json() == submission.json()
    assert (validation.status_code, validation.json()["code"]) == (422, code)
    assert validation.json()["field"] == field


def test_training_and_corpora_take_memory_and_time(server: Server) -> None:
    """The parts of the memory explain its peak, and what is read more takes longer."""
    body = {"model": SMALL, "layers": 2, "calibration": {"sequences": 2, "sequence_length": 32}}
    plain = validated(server, **body).json()["estimate"]
    trained = validated(server, **body, finetune={"trainable": "down_proj"}).json()["estimate"]
    memory = trained["memory"]
    stages = [memory[f"{name}_bytes"] for name in ("scoring", "calibration", "finetune", "evaluation")]
    assert memory["peak_bytes"] == memory["weights_bytes"] + max(stages)
    assert plain["memory"]["finetune_bytes"] == 0 < memory["finetune_bytes"]
    read = validated(server, **body, evaluation={"corpora": ["c4"]}).json()["estimate"]
    assert min(trained["time"]["operations"], read["time"]["operations"]) > plain["time"]["operations"]


@pytest.mark.parametrize(
    ("status", "headers", "code"),
    [
        (404, {}, "model_not_found"),
        (401, {}, "model_not_found"),
        (401, {"X-Error-Code": "GatedRepo"}, "model_gated"),
    ],
)
def test_the_hub_knows_better(
    server: Server, hub: Hub, status: int, headers: dict[str, str], code: str
) -> None:
    """What the job would fail of at once is told at once."""
    hub.status, hub.headers = status, headers
    refused = validated(server, **small())
    assert (refused.status_code, refused.json()["code"]) == (422, code)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "corrupt_model"),
        (b'{"a": ' * 5000, "corrupt_model"),
        (b'{"model_type": "llama", "auto_map": {}, "architectures": ["LlamaForCausalLM"]}', "unsafe_model"),
        (b" " * (2 << 20), "unsafe_model"),
    ],
)
def test_a_hostile_configuration_is_refused(server: Server, hub: Hub, content: bytes, code: str) -> None:
    """It is read by the same rules as the worker's."""
    hub.content = content
    refused = validated(server, **small())
    assert (refused.status_code, refused.json()["code"]) in {(422, code), (422, "unsafe_model")}


def test_huge_numbers_are_refused(server: Server, hub: Hub) -> None:
    """A configuration of absurd sizes costs nothing."""
    config = json.loads(hub.content) | {"num_hidden_layers": 10**9}
    hub.content = json.dumps(config).encode()
    assert validated(server, **small()).json()["code"] == "unsafe_model"


@pytest.mark.parametrize("fault", ["slow", "down", "off", "broken"])
def test_a_hub_that_does_not_answer_costs_no_more_than_two_seconds(
    server: Server, hub: Hub, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The rest of the answer comes without it, and a warning says so."""
    if fault == "slow":
        hub.pause_seconds = 2.5
    elif fault == "down":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    elif fault == "off":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    else:
        hub.status = 503
    began = time.monotonic()
    response = validated(server, **small())
    assert time.monotonic() - began < 2
    answer = response.json()
    assert (response.status_code, answer["estimate"], answer["model"]) == (200, None, None)
    assert [one["code"] for one in answer["warnings"]] == ["hub_unavailable"]


def test_an_architecture_without_rules_is_said_so(server: Server, hub: Hub) -> None:
    """Nothing is guessed."""
    hub.content = json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}).encode()
    answer = validated(server, **small()).json()
    assert (answer["estimate"], [one["code"] for one in answer["warnings"]]) == (None, ["sizes_unknown"])


def test_what_was_hardly_meant_is_warned_of(server: Server, hub: Hub) -> None:
    """Most layers, the first and the last one, and too little text for the operator."""
    calibration = {"sequences": 1, "sequence_length": 2, "held_out_sequences": 1}
    body = small(None, strategy={"name": "explicit", "indices": [0, 2, 4, 5]}, calibration=calibration)
    warned = [one["code"] for one in validated(server, **body).json()["warnings"]]
    assert warned == ["many_layers", "outer_layer", "outer_layer", "few_tokens"]


def test_an_api_that_asks_nobody_asks_nobody(base_url: str, server: Server, hub: Hub) -> None:
    """With GHOSTED_RESOLVE_MODELS off, validating does not ask the Hub either, and says so."""
    answer = validated(Server(base_url, server.key), **small()).json()
    assert hub.asked == []
    assert [one["code"] for one in answer["warnings"]] == ["hub_unavailable"]
