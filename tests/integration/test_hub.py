import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ghosted_core.catalog import Catalog
from ghosted_core.checkpoint.hub import HubClient
from ghosted_core.checkpoint.hub_faults import translated
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.errors import (
    CorruptModelError,
    GatedModelError,
    GhostedError,
    HubUnavailableError,
    ModelNotFoundError,
    UnsafeModelError,
    UnsupportedModelError,
)
from ghosted_core.spec import HubModel
from tests.hub_double import ENTITLED, Hub, Repository, running_hub
from tests.model_folders import TINY_CONFIG, sharded_files, tiny_files

SECRET = "hf_not_to_be_seen"  # noqa: S105  # A made-up token.


def fetch(
    hub: Hub,
    cache: Path,
    *,
    identifier: str = "owner/name",
    revision: str | None = None,
    token: str | None = SECRET,
) -> ModelSource:
    """The model through the double, by the real client."""
    return resolve(
        HubModel(id=identifier, revision=revision),
        catalog=Catalog(models={}, texts={}),
        cache=cache,
        hub_token=token,
        log=lambda _: None,
        supported=["llama"],
        hub_endpoint=hub.endpoint,
    )


@pytest.mark.parametrize("files", [tiny_files(), sharded_files()], ids=["single", "sharded"])
def test_files_arrive_as_they_are(tmp_path: Path, files: dict[str, bytes]) -> None:
    """The folder holds the repository's config and weights byte for byte, at the named commit."""
    repository = Repository(files)
    with running_hub({"owner/name": repository}) as hub:
        source = fetch(hub, tmp_path)
    assert source.commit == repository.commit
    assert {name: (source.path / name).read_bytes() for name in files} == files


def test_a_revision_becomes_its_commit(tmp_path: Path) -> None:
    """A tag is resolved once; the files are asked for by commit, never by the tag."""
    repository = Repository(tiny_files(), revisions=("main", "v1.0"), commit="a" * 40)
    with running_hub({"owner/name": repository}) as hub:
        assert fetch(hub, tmp_path, revision="v1.0").commit == "a" * 40
    resolved = [path for _, path, _ in hub.requests if "/resolve/" in path]
    assert resolved
    assert all("/resolve/" + "a" * 40 in path for path in resolved)


def test_only_what_is_needed_is_fetched(tmp_path: Path) -> None:
    """Code, pickles and pictures stay where they are; tokenizer and licence come along."""
    wanted = {**tiny_files(), "tokenizer.json": b"{}", "LICENSE": b"free", "chat_template.jinja": b"x"}
    unwanted = {"modeling.py": b"raise", "pytorch_model.bin": b"pickle", "logo.png": b"", "sub/x.json": b"{}"}
    with running_hub({"owner/name": Repository({**wanted, **unwanted})}) as hub:
        fetch(hub, tmp_path)
    assert set(hub.downloads()) == set(wanted)


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        (Repository({}, refusal=(403, "GatedRepo")), GatedModelError),
        (Repository({}, refusal=(401, "GatedRepo")), GatedModelError),
        (Repository(tiny_files(), gated_files=True), GatedModelError),
        (Repository({}, refusal=(404, "RepoNotFound")), ModelNotFoundError),
        (Repository({}, refusal=(401, "RepoNotFound")), ModelNotFoundError),
        (Repository({}, refusal=(403, None)), ModelNotFoundError),
        (Repository(tiny_files(), revisions=()), ModelNotFoundError),
        (Repository({}, refusal=(503, None)), HubUnavailableError),
        (Repository({}, refusal=(429, None)), HubUnavailableError),
        (Repository({"model.safetensors": b""}), CorruptModelError),
        (Repository({"config.json": b"{}"}), CorruptModelError),
        (Repository({"config.json": b"{}", "pytorch_model.bin": b""}), UnsafeModelError),
        (Repository({**tiny_files(), "../escape.json": b"{}"}), UnsafeModelError),
        (Repository(tiny_files(), listed_sizes={"config.json": 7}), CorruptModelError),
    ],
    ids=lambda value: "" if isinstance(value, Repository) else value.__name__,
)
def test_each_refusal_has_its_error(
    tmp_path: Path, repository: Repository, expected: type[GhostedError]
) -> None:
    """Gated, missing, unavailable, incomplete and unsafe are told apart, and no message shows the token."""
    with running_hub({"owner/name": repository}) as hub, pytest.raises(expected) as caught:
        fetch(hub, tmp_path)
    assert type(caught.value) is expected
    assert SECRET not in str(caught.value)


def test_an_unknown_id_is_not_found(tmp_path: Path) -> None:
    """The Hub answers 401 for a repository that does not exist; to the user it is not found."""
    with running_hub({}) as hub, pytest.raises(ModelNotFoundError):
        fetch(hub, tmp_path, identifier="owner/tpyo")


def test_a_refused_model_costs_no_weights(tmp_path: Path) -> None:
    """An architecture that cannot be pruned is refused before its weights are asked for."""
    files = {**tiny_files(), "config.json": json.dumps({**TINY_CONFIG, "model_type": "other"}).encode()}
    with running_hub({"owner/name": Repository(files)}) as hub, pytest.raises(UnsupportedModelError):
        fetch(hub, tmp_path)
    assert hub.downloads() == ["config.json"]


def test_no_hub_at_all_is_unavailable(tmp_path: Path) -> None:
    """A port where nobody listens is an unavailable Hub."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        hub = Hub({}, endpoint=f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(HubUnavailableError):
            fetch(hub, tmp_path)


def test_a_broken_download_is_completed_later(tmp_path: Path) -> None:
    """A Hub that breaks down after the small files yields an error; the same call later completes them."""
    repository = Repository(tiny_files(), broken_files=frozenset({"model.safetensors"}))
    with running_hub({"owner/name": repository}) as hub:
        with pytest.raises(HubUnavailableError):
            fetch(hub, tmp_path)
        repository.broken_files = frozenset()
        assert (fetch(hub, tmp_path).path / "model.safetensors").read_bytes() == repository.files[
            "model.safetensors"
        ]


def test_the_token_is_in_no_repr() -> None:
    """A client can be logged without giving its token away."""
    assert SECRET not in repr(HubClient(cache=Path(), token=SECRET))


SCRIPT = """
import sys
from pathlib import Path
from ghosted_core.catalog import Catalog
from ghosted_core.checkpoint.hub_faults import translated
from ghosted_core.checkpoint.source import resolve
from ghosted_core.errors import GhostedError
from ghosted_core.spec import HubModel
try:
    source = resolve(HubModel(id="owner/name"), catalog=Catalog({}, {}), cache=Path(sys.argv[1]),
                     hub_token=None, log=lambda _: None)
    print(source.commit, end="")
except GhostedError as error:
    print(error.code, end="")
"""


def in_fresh_process(cache: Path, **environment: str) -> str:
    """What the script prints in a process whose environment says where the Hub is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(cache)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert finished.stderr == ""
    return finished.stdout


def test_environment_names_the_hub_and_offline_uses_the_cache(tmp_path: Path) -> None:
    """HF_ENDPOINT is honoured; with HF_HUB_OFFLINE a fetched model is found and another is not."""
    repository = Repository(tiny_files())
    with running_hub({"owner/name": repository}) as hub:
        assert in_fresh_process(tmp_path, HF_ENDPOINT=hub.endpoint) == repository.commit
        asked = len(hub.requests)
        offline = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "1"}
        assert in_fresh_process(tmp_path, **offline) == repository.commit
        assert in_fresh_process(tmp_path / "empty", **offline) == "hub_unavailable"
    assert len(hub.requests) == asked


def test_an_anonymous_job_sends_no_token(tmp_path: Path) -> None:
    """Without a token none is sent, not even one that lies on this machine."""
    with running_hub({"owner/name": Repository(tiny_files())}) as hub:
        in_fresh_process(tmp_path, HF_ENDPOINT=hub.endpoint, HF_TOKEN=SECRET)
    assert {authorization for _, _, authorization in hub.requests} == {None}


def test_a_token_goes_to_the_hub(tmp_path: Path) -> None:
    """The job's token is what the Hub is shown."""
    with running_hub({"owner/name": Repository(tiny_files())}) as hub:
        fetch(hub, tmp_path)
    assert f"Bearer {SECRET}" in {authorization for _, _, authorization in hub.requests}


def test_the_cache_gives_gated_files_to_nobody_else(tmp_path: Path) -> None:
    """What one user's token fetched lies in the shared cache; without a token it is refused all the same."""
    repository = Repository(tiny_files(), gated_files=True)
    with running_hub({"owner/name": repository}) as hub:
        fetch(hub, tmp_path, token=ENTITLED.removeprefix("Bearer "))
        for token in (None, "hf_of_another_user"):
            with pytest.raises(GatedModelError):
                fetch(hub, tmp_path, token=token)


def test_a_hub_that_hangs_on_a_gated_model_is_given_up(tmp_path: Path) -> None:
    """Whether the token may read is asked with the client's patience, not for ever."""
    repository = Repository(tiny_files(), gated_files=True, silent_seconds=1.5)
    reference = HubModel(id="owner/name")
    with running_hub({"owner/name": repository}) as hub:
        client = HubClient(tmp_path, token=SECRET, endpoint=hub.endpoint, timeout_seconds=0.2)
        began = time.monotonic()
        with pytest.raises(HubUnavailableError), translated(reference):
            client.listing(reference)
        assert time.monotonic() - began < 1


def test_a_source_is_a_value(tmp_path: Path) -> None:
    """Nobody changes a source after it was checked."""
    with running_hub({"owner/name": Repository(tiny_files())}) as hub:
        source = fetch(hub, tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.path = tmp_path  # type: ignore[misc]
