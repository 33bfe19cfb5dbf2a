"""Models and texts that an operator gave an alias."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ghosted_client import Client, InvalidError
from services.config import Settings
from tests.integration.services.clients import KINDS, opened
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server, environment

COMMIT = "0123456789abcdef" * 2 + "01234567"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 8,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 2048,
    "torch_dtype": "float32",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder, of which the API reads the configuration alone."""
    made = tmp_path_factory.mktemp("house")
    (made / "config.json").write_text(json.dumps(CONFIG))
    return made


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's aliases."""
    made = tmp_path_factory.mktemp("catalog") / "catalog.toml"
    made.write_text(
        f"""
        [models.house]
        path = "{folder}"
        title = "The house's own"

        [models.elsewhere]
        path = "/srv/models/elsewhere"

        [models.pinned]
        hub = "owner/name"
        commit = "{COMMIT}"

        [datasets.mix]
        path = "/srv/texts/mix.jsonl"
        """
    )
    return made


@pytest.fixture(scope="module")
def knowing_url(settings: Settings, file: Path) -> Iterator[str]:
    """The address of an API with these aliases."""
    with serve(settings.model_copy(update={"catalog": file})) as url:
        yield url


@pytest.fixture
def knowing(knowing_url: str, key: str) -> Server:
    return Server(knowing_url, key)


@pytest.mark.parametrize("kind", KINDS)
def test_aliases_are_listed(knowing: Server, folder: Path, kind: str) -> None:
    """With what is known of each, and without the folders of the machine; built-in ones too."""
    with opened(kind, knowing) as client:
        models = {model.alias: model for model in client.models()}
        datasets = {dataset.alias: dataset for dataset in client.datasets()}
    assert set(models) == {"elsewhere", "house", "pinned", "smollm2-135m-instruct"}
    assert (models["house"].title, models["house"].layer_count) == ("The house's own", 8)
    assert (models["pinned"].origin.name, models["pinned"].origin.version) == ("owner/name", COMMIT)
    assert models["elsewhere"].layer_count is None
    assert models["smollm2-135m-instruct"].layer_count == 30
    assert {"mix", "c4-train"} <= set(datasets)
    told = knowing.request("GET", "/v1/models").text + knowing.request("GET", "/v1/datasets").text
    assert "/srv/" not in told
    assert str(folder) not in told


def test_a_job_names_an_alias(knowing: Server) -> None:
    """Accepted as it is, found by its alias, and nowhere does the job show where it leads."""
    spec = {"model": "house", "layers": 2, "calibration": {"dataset": "mix"}}
    with Client(knowing.url, knowing.key) as client:
        job = client.submit(spec)
        assert job.spec["model"] == {"kind": "catalog", "alias": "house"}
        assert [found.id for found in client.jobs(model="house")] == [job.id]
        assert "/srv/" not in job.model_dump_json()


def test_what_does_not_fit_is_refused_at_once(knowing: Server) -> None:
    """The folder is on the API's machine too, so its layers are known."""
    with Client(knowing.url, knowing.key) as client:
        found = client.validate({"model": "house", "layers": 2, "strategy": "reverse"})
        assert found.model is not None
        assert found.kept is not None
        assert (found.model.layer_count, len(found.kept)) == (8, 6)
        with pytest.raises(InvalidError, match="only 8 layers"):
            client.submit({"model": "house", "layers": 8})
        unknown = client.validate({"model": "elsewhere", "layers": 2})
        assert [warning.code for warning in unknown.warnings] == ["sizes_unknown"]


@pytest.mark.parametrize("model", ["../house", "/srv/models/elsewhere", "house/..", "HOUSE", "nowhere"])
def test_nothing_but_an_alias_is_one(knowing: Server, model: str) -> None:
    """No text of a user's leads to a folder."""
    for named in (model, {"kind": "catalog", "alias": model}, {"kind": "local", "path": model}):
        response = knowing.submit({"model": named, "layers": 2})
        assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")


@pytest.mark.parametrize("module", ["services.api", "worker"])
def test_a_bad_file_is_said_at_the_start(settings: Settings, tmp_path: Path, module: str) -> None:
    """API and worker end with one sentence that names the file and the place in it."""
    bad = tmp_path / "catalog.toml"
    bad.write_text('[models.a]\nhub = "owner/name"\ncommit = "main"\n')
    done = subprocess.run(
        [sys.executable, "-m", module],
        env=environment(settings.model_copy(update={"catalog": bad})),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert f"The catalog {bad} holds what it must not: models.a.commit" in done.stderr
    assert "Traceback" not in done.stderr
