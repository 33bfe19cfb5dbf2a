"""Hub models are pinned to a commit when they are submitted; a double of the Hub answers the real client."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import huggingface_hub.constants
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from ghosted_core.errors import HubUnavailableError
from ghosted_core.spec import JobSpec
from services.config import Settings
from services.db.models import Job
from services.db.sessions import Database
from services.pinning import MOST_AT_ONCE, HubDesk
from tests.hub_double import ENTITLED, Hub, Repository, running_hub
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server
from tests.integration.services.test_api import BODY, problem

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "dtype": "float32",
}
FILES = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": b""}
COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
SECRET = SecretStr("0123456789abcdef" * 2)
Asked = tuple[Server, Hub]
Ask = Callable[[dict[str, Repository]], Asked]


@pytest.fixture
def ask(settings: Settings, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """An API that asks a Hub with these repositories."""
    with ExitStack() as running:

        def begin(repositories: dict[str, Repository]) -> Asked:
            hub = running.enter_context(running_hub(repositories))
            # What HF_ENDPOINT sets when a process starts.
            monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.endpoint)
            monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
            asking = settings.model_copy(update={"resolve_models": True, "secret_key": SECRET})
            return Server(running.enter_context(serve(asking)), server.key), hub

        yield begin


def submit(server: Server, token: str | None = None, **changes: Any) -> Any:
    headers = {} if token is None else {"X-Hub-Token": token}
    return server.request("POST", "/v1/jobs", json={**BODY, **changes}, headers=headers)


def validated(server: Server, token: str | None = None, **changes: Any) -> Any:
    headers = {} if token is None else {"X-Hub-Token": token}
    return server.request("POST", "/v1/jobs:validate", json={**BODY, **changes}, headers=headers)


@pytest.mark.parametrize("model", ["owner/tiny", "owner/tiny@v1", f"owner/tiny@{COMMIT}"])
def test_a_revision_becomes_its_commit(ask: Ask, model: str) -> None:
    """Branch, tag and commit are stored as the commit that they name at that moment."""
    server, _ = ask({"owner/tiny": Repository(FILES, commit=COMMIT, revisions=("main", "v1"))})
    response = submit(server, model=model)
    assert response.status_code == 202, response.text
    assert response.json()["spec"]["model"] == {"kind": "hub", "id": "owner/tiny", "revision": COMMIT}


def test_a_retry_keeps_its_commit(ask: Ask) -> None:
    """A clone means the commit of its original, wherever the branch is by then."""
    repository = Repository(FILES, commit=COMMIT)
    server, hub = ask({"owner/tiny": repository})
    job_id = submit(server).json()["id"]
    # Only the commit is left: a question for the branch would find nothing.
    hub.repositories["owner/tiny"] = Repository(FILES, commit=COMMIT, revisions=())
    clone = server.request("POST", f"/v1/jobs/{job_id}/retry")
    assert clone.json()["spec"]["model"]["revision"] == COMMIT


@pytest.mark.parametrize(
    ("repository", "status", "code"),
    [
        (None, 422, "model_not_found"),
        (Repository(FILES, refusal=(401, "RepoNotFound")), 422, "model_not_found"),
        (Repository(FILES, revisions=("other",)), 422, "model_not_found"),
        (Repository(FILES, refusal=(403, "GatedRepo")), 422, "model_gated"),
        (Repository(FILES, gated_files=True), 422, "model_gated"),
        (Repository(FILES, refusal=(500, None)), 503, "hub_unavailable"),
        (Repository(FILES, refusal=(429, None)), 503, "hub_unavailable"),
        (Repository({"config.json": b"{}", "pytorch_model.bin": b""}), 422, "unsafe_model"),
        (Repository({"config.json": b"{}"}), 422, "corrupt_model"),
        (Repository({**FILES, "../../etc/cron.d/x": b""}), 422, "unsafe_model"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_refusal_is_a_problem_of_its_own(
    ask: Ask, repository: Repository | None, status: int, code: str
) -> None:
    """Missing, gated, out of order and unusable are told apart, with the field; no job is made."""
    server, hub = ask({} if repository is None else {"owner/tiny": repository})
    response = submit(server)
    assert problem(response, status, code)["field"] == "model"
    assert ("retry-after" in response.headers) == (status == 503)
    assert hub.endpoint not in response.text
    assert server.request("GET", "/v1/jobs").json()["items"] == []
    validation = validated(server)
    if status == 422:
        assert validation.json() == response.json()
    else:
        # What is known without the Hub is told; a job could not be made now.
        assert [one["code"] for one in validation.json()["warnings"]] == [code]


def test_no_hub_at_all_is_said(settings: Settings, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nobody answers it is 503 with what to do, and other models can still be submitted."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    with serve(settings.model_copy(update={"resolve_models": True})) as url:
        own = Server(url, server.key)
        found = problem(submit(own), 503, "hub_unavailable")
        assert submit(own, model="smollm2-135m-instruct").status_code == 202
    assert "try again" in found["advice"].lower()
    assert "127.0.0.1" not in str(found)


def test_offline_revisions_stay_as_they_are(
    settings: Settings, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the Hub client is set to offline the workers' caches decide."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with serve(settings.model_copy(update={"resolve_models": True})) as url:
        response = submit(Server(url, server.key), model="owner/tiny@v1")
    assert response.json()["spec"]["model"]["revision"] == "v1"


def test_a_token_opens_a_gated_model(ask: Ask) -> None:
    """The user's token goes to the Hub with the question, and to the Hub only."""
    server, hub = ask({"owner/tiny": Repository(FILES, gated_files=True)})
    assert submit(server, token=ENTITLED.removeprefix("Bearer ")).status_code == 202
    assert {said for _, _, said in hub.requests} == {ENTITLED}


def test_a_validation_is_of_what_a_submission_would_make(ask: Ask) -> None:
    """With the user's token, which opens a gated model, both have the same spec at the same commit."""
    server, _ = ask({"owner/tiny": Repository(FILES, commit=COMMIT, gated_files=True)})
    token = ENTITLED.removeprefix("Bearer ")
    validation, submission = validated(server, token).json(), submit(server, token).json()
    assert validation["spec"]["model"]["revision"] == COMMIT
    assert validation["spec_digest"] == submission["spec_digest"]
    assert (validation["warnings"], validation["model"]["layer_count"]) == ([], 30)


def test_no_transaction_waits_for_the_hub(ask: Ask, database: Database) -> None:
    """While the Hub thinks, a submission holds no connection and no lock of the database."""
    server, hub = ask({"owner/tiny": Repository(FILES, gated_files=True, silent_seconds=1)})
    headers = {"X-Hub-Token": ENTITLED.removeprefix("Bearer "), "Idempotency-Key": "k"}
    answers: list[int] = []

    def send() -> None:
        answers.append(server.request("POST", "/v1/jobs", json=BODY, headers=headers).status_code)

    sending = threading.Thread(target=send)
    sending.start()
    while not any(path.endswith("/auth-check") for _, path, _ in hub.requests):
        time.sleep(0.01)
    with database.read() as session:
        open_ones = session.scalar(
            text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
        )
    waits = sending.is_alive()
    sending.join()
    assert (open_ones, waits, answers) == (0, True, [202])


def test_without_a_token_none_is_sent(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of the operator that lies on the machine is not used for users."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_operator")
    server, hub = ask({"owner/tiny": Repository(FILES)})
    submit(server)
    assert {said for _, _, said in hub.requests} == {None}


def test_no_weight_is_fetched(ask: Ask) -> None:
    """The API asks for lists and for config.json."""
    server, hub = ask({"owner/tiny": Repository(FILES)})
    submit(server)
    assert hub.downloads() == ["config.json"]


def test_a_slow_hub_does_not_take_all_threads() -> None:
    """Beyond a few questions at once the answer is 503 at once, not a thread that waits."""
    desk = HubDesk(enabled=True)
    for _ in range(MOST_AT_ONCE):
        desk._free.acquire()
    begun = time.monotonic()
    with pytest.raises(HubUnavailableError):
        desk.pinned(JobSpec.model_validate(BODY))
    assert time.monotonic() - begun < 1


def test_the_needs_of_a_hub_model_are_known(ask: Ask, database: Database) -> None:
    """From its config.json, so that a worker that cannot hold it does not try."""
    server, _ = ask({"owner/tiny": Repository(FILES)})
    job_id = submit(server).json()["id"]
    with database.read() as session:
        job = session.get_one(Job, UUID(job_id))
    assert (job.needs_memory_bytes or 0) > 4 * 134_515_008
    assert (job.needs_disk_bytes or 0) > 4 * 100_000_000


def test_a_job_that_does_not_fit_a_hub_model_is_refused(ask: Ask) -> None:
    """As jobs:validate refuses it."""
    server, _ = ask({"owner/tiny": Repository(FILES)})
    problem(submit(server, layers=40), 422, "invalid_spec")


def test_code_in_a_configuration_is_refused_at_once(ask: Ask) -> None:
    """Not hours later, by the worker."""
    hostile = json.dumps({**CONFIG, "auto_map": {"AutoModelForCausalLM": "evil.Model"}}).encode()
    server, _ = ask({"owner/tiny": Repository({**FILES, "config.json": hostile})})
    problem(submit(server), 422, "unsafe_model")
