"""What docker-compose.yml promises."""

import importlib.util
import re
import subprocess
import sys
from typing import Any

import pytest

from services.config import Settings
from tests import compose_file
from tests.compose_file import COMPOSE, ROOT, SECRETS, MissingVariableError
from worker.clearing import CLEAR_SECONDS
from worker.config import WorkerSettings

SERVICES = compose_file.services()
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
ONE_SHOT = {name for name, service in SERVICES.items() if service["restart"].startswith("on-failure")}
WITH_SETTINGS = {name: service for name, service in OURS.items() if service["command"][0] == "python"}
DOCUMENTS = (COMPOSE, ROOT / ".env.example", ROOT / "docs/deployment.md")


def settings_of(service: dict[str, Any]) -> type[Settings]:
    """The class that the service's process reads its settings with."""
    return WorkerSettings if service["command"][-1] == "worker" else Settings


def names(kind: type[Settings]) -> set[str]:
    return {f"GHOSTED_{name.upper()}" for name in kind.model_fields}


def each(found: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", sorted(found))


def test_the_schema_holds() -> None:
    """The file is what the compose specification allows."""
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(COMPOSE),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_setting_exists(document: Any) -> None:
    """No document names a setting that nothing reads."""
    named = set(re.findall(r"\bGHOSTED_[A-Z0-9_]+\b", document.read_text()))
    assert named - names(WorkerSettings) == set()


@each(WITH_SETTINGS)
def test_a_service_can_be_given_only_what_it_reads(name: str) -> None:
    """No variable reaches a process whose settings do not know it."""
    given = {key for key in SERVICES[name]["environment"] if key.startswith("GHOSTED_")}
    assert given - names(settings_of(SERVICES[name])) == set()


def test_every_setting_can_be_set() -> None:
    """Whatever docs/settings.md offers reaches at least one service."""
    given = {key for service in WITH_SETTINGS.values() for key in service["environment"]}
    assert names(WorkerSettings) - given == set()


@each(WITH_SETTINGS)
def test_the_required_settings_suffice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the four secrets set and nothing else, each service's settings are complete and valid."""
    for key, value in compose_file.environment(SERVICES[name]).items():
        monkeypatch.setenv(key, value)
    settings = settings_of(SERVICES[name])()
    assert SECRETS["POSTGRES_PASSWORD"] in settings.database_url.get_secret_value()


@each(WITH_SETTINGS)
def test_what_the_operator_sets_arrives(name: str) -> None:
    """A variable in .env reaches the process, and one that is not there does not arrive empty."""
    told = {**SECRETS, "GHOSTED_LOG_LEVEL": "debug"}
    assert compose_file.environment(SERVICES[name], told)["GHOSTED_LOG_LEVEL"] == "debug"
    assert "GHOSTED_LOG_LEVEL" not in compose_file.environment(SERVICES[name])


@each(SECRETS)
def test_no_secret_has_a_default(name: str) -> None:
    """Without any of the secrets nothing starts, and the message names it."""
    with pytest.raises(MissingVariableError, match=name):
        compose_file.services({key: value for key, value in SECRETS.items() if key != name})


def test_no_secret_stands_in_the_file() -> None:
    """Whatever is named like a secret is a variable that must be set, and is empty in .env.example."""
    for service in compose_file.read()["services"].values():
        for key, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|ACCESS_KEY|DATABASE_URL|REDIS_URL", key):
                assert ":?" in value, key
    example = re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert dict(example) == dict.fromkeys(SECRETS, "")


def test_no_secret_is_an_argument() -> None:
    """Arguments can be read by everyone on the machine."""
    for service in SERVICES.values():
        probe = service.get("healthcheck", {}).get("test")
        arguments = [service.get("entrypoint"), service.get("command"), probe]
        assert not any(
            secret in text for text in compose_file.texts(arguments) for secret in SECRETS.values()
        )


@each(SERVICES)
def test_a_service_has_a_health_check_or_ends(name: str) -> None:
    """What goes on running can be asked whether it is well."""
    assert ("healthcheck" in SERVICES[name]) != (name in ONE_SHOT)


@each(SERVICES)
def test_dependencies_are_waited_for(name: str) -> None:
    """What ends must have succeeded, what runs must be healthy."""
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        done = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
        assert wanted["condition"] == done


@each(WITH_SETTINGS)
def test_the_command_is_a_module(name: str) -> None:
    """`python -m MODULE`, and MODULE is there to be run."""
    program, option, module = SERVICES[name]["command"]
    assert (program, option) == ("python", "-m")
    spec = importlib.util.find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations is not None:
        assert importlib.util.find_spec(f"{module}.__main__") is not None


@each(SERVICES)
def test_a_service_has_few_rights(name: str) -> None:
    """No capability, no way to more rights, nothing writable but volumes and memory."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["read_only"] is True
    assert not {"privileged", "cap_add", "pid", "ipc"} & set(service)


@each(SERVICES)
def test_little_is_published(name: str) -> None:
    """Only the API and the S3 port can be reached from this machine, and from no other."""
    published = SERVICES[name].get("ports", [])
    assert [port.rpartition(":")[2] for port in published] == {"api": ["8000"], "s3": ["8333"]}.get(name, [])
    assert all(port.startswith("127.0.0.1:") for port in published)


@each(SERVICES)
def test_images_are_pinned(name: str) -> None:
    """Each image has an exact version."""
    assert re.search(r":v?\d+\.\d+(\.\d+)?(-[\w.]+)?$", SERVICES[name]["image"])


@each(set(SERVICES) - set(OURS))
def test_foreign_images_do_not_start_as_root(name: str) -> None:
    """Their own images would."""
    assert SERVICES[name]["user"] not in {"root", "0", "0:0"}


@each({"worker", "worker-gpu"})
def test_a_worker_has_time_to_stop(name: str) -> None:
    """Twice what it takes at most to notice, end the job's process, clear up and write it down."""
    fields = WorkerSettings.model_fields
    noticing = fields["orders_seconds"].default
    ending = fields["stop_seconds"].default + CLEAR_SECONDS
    writing = fields["lease_seconds"].default
    assert compose_file.seconds(SERVICES[name]["stop_grace_period"]) > 2 * (noticing + ending + writing)


@each(set(SERVICES) - ONE_SHOT)
def test_everything_that_runs_has_its_own_time_to_stop(name: str) -> None:
    """Docker's ten seconds are too short for all of them."""
    assert compose_file.seconds(SERVICES[name]["stop_grace_period"]) >= 30


def test_the_profiles_differ_in_the_device() -> None:
    """Each profile brings one worker; only the one of `gpu` asks for a device."""
    devices = {service["profiles"][0]: service for service in SERVICES.values() if "profiles" in service}
    assert {name: service["environment"]["GHOSTED_DEVICE"] for name, service in devices.items()} == {
        "cpu": "cpu",
        "gpu": "cuda",
    }
    assert "deploy" not in devices["cpu"]
    reserved = devices["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert [device["capabilities"] for device in reserved] == [["gpu"]]


def test_links_are_signed_for_another_address() -> None:
    """The services' address of the store is a name that only containers know; links carry the public one."""
    api = compose_file.environment(SERVICES["api"])
    assert api["GHOSTED_S3_ENDPOINT"] == "http://s3:8333"
    assert api["GHOSTED_S3_PUBLIC_ENDPOINT"] == "http://127.0.0.1:8333"
    told = {**SECRETS, "GHOSTED_S3_PUBLIC_ENDPOINT": "https://files.example.org"}
    assert compose_file.services(told)["api"]["environment"]["GHOSTED_S3_PUBLIC_ENDPOINT"].endswith(".org")


@each({"postgres", "redis", "migrate", "relay", "s3-bucket"})
def test_what_needs_no_way_out_has_none(name: str) -> None:
    """These are in the internal network only."""
    assert SERVICES[name]["networks"] == ["back"]
    assert compose_file.read()["networks"]["back"]["internal"] is True


@each({"worker", "worker-gpu", "relay", "api"})
def test_what_ends_by_itself_is_started_anew(name: str) -> None:
    """A worker that gave itself up ends with a code that is not 0, and counts on that."""
    assert SERVICES[name]["restart"] in {"always", "unless-stopped"}
