"""The broker and the object store as docker-compose.yml sets them up, outside a container."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from services.embedded.ports import LOOPBACK, find_free
from services.embedded.programs import Programs, first
from services.embedded.s3 import S3Location, make_client
from tests.compose_file import ROOT, SECRETS
from tests.compose_outside import SERVICES, Outside, ended, wait

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HTTP2_SETTINGS = 4
TLS_ALERT = 0x15


@dataclass(frozen=True)
class Broker:
    """The compose file's Redis, on another port."""

    process: subprocess.Popen[bytes]
    port: int
    environment: Mapping[str, str] = field(repr=False)

    def healthy(self) -> bool:
        kind, text = SERVICES["redis"]["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        check = text.replace("-p 6379", f"-p {self.port}")
        done = subprocess.run(
            ["sh", "-c", check], check=False, env=self.environment, capture_output=True, timeout=10
        )
        return done.returncode == 0

    def client(self, password: str | None) -> redis.Redis:
        return redis.Redis(host=LOOPBACK, port=self.port, password=password, decode_responses=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Redis as the compose file configures it."""
    folder = tmp_path_factory.mktemp("broker")
    server = first(Programs.search().redis, "Redis")
    client = next(path for path in server.parent.glob("*-cli"))
    for name, program in {"valkey-server": server, "valkey-cli": client}.items():
        (folder / name).symlink_to(program)
    (port,) = find_free(1)
    (script,) = SERVICES["redis"]["command"]
    moves = {"bind * -::*": f"bind {LOOPBACK}", "port 6379": f"port {port}", "dir /data": f"dir {folder}"}
    for old, new in moves.items():
        assert old in script
        script = script.replace(old, new)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **SERVICES["redis"]["environment"]}
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*SERVICES["redis"]["entrypoint"], script],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with ended(process):
        running = Broker(process, port, environment)
        wait(running.healthy, process, log)
        yield running


def test_the_broker_forgets_nothing(broker: Broker) -> None:
    """It evicts nothing and writes every change."""
    with broker.client(SECRETS["REDIS_PASSWORD"]) as client:
        found = {name: client.config_get(name)[name] for name in ("maxmemory-policy", "appendonly")}
        found |= client.config_get("appendfsync")
    assert found == {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}


def test_the_broker_asks_for_the_password(broker: Broker) -> None:
    """Without the password it answers nothing, the health check included; no argument shows it."""
    with broker.client(None) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    wrong = {**broker.environment, "REDIS_PASSWORD": "wrong"}
    assert not Broker(broker.process, broker.port, wrong).healthy()
    arguments = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes()
    assert b"server" in arguments
    assert SECRETS["REDIS_PASSWORD"].encode() not in arguments


@dataclass(frozen=True)
class ObjectStore:
    """The compose file's SeaweedFS, on other ports."""

    location: S3Location
    grpc_port: int


def _certificate(folder: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed; the image has it")
    program, script, _folder = SERVICES["s3-certificate"]["command"]
    here = ROOT / "docker/seaweedfs" / Path(script).name
    subprocess.run([program, str(here), str(folder)], check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """SeaweedFS with the compose file's arguments and keys, and the certificate of its one-shot service."""
    folder = tmp_path_factory.mktemp("store")
    for name in ("keys", "data"):
        (folder / name).mkdir()
    _certificate(folder / "keys")
    ports = find_free(8)
    pairs = zip(("master", "volume", "filer", "s3"), ports[::2], ports[1::2], strict=True)
    # The last of two equal options counts.
    moved = [f"-dir={folder}/data", f"-s3.ip.bind={LOOPBACK}"]
    # Sockets that it would otherwise leave in the system's temporary folder.
    moved += [f"-{role}.localSocket={folder}/{role}.sock" for role in ("filer", "s3")]
    for role, http, grpc in pairs:
        moved += [f"-{role}.port={http}", f"-{role}.port.grpc={grpc}"]
    weed = first(Programs.search().weed, "S3 (weed)")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(weed), *SERVICES["s3"]["command"], *moved],
            cwd=folder / "keys",
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **SERVICES["s3"]["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    endpoint = f"http://{LOOPBACK}:{ports[-2]}"
    keys = SECRETS["GHOSTED_S3_ACCESS_KEY"], SECRETS["GHOSTED_S3_SECRET_KEY"]
    asked = urlsplit(SERVICES["s3"]["healthcheck"]["test"][-1]).path
    with ended(process):
        wait(lambda: _answers(ports[-2], asked), process, log)
        yield ObjectStore(S3Location(endpoint, *keys), ports[-1])


def _answers(port: int, path: str) -> bool:
    """What the health check asks, without its program."""
    command = [sys.executable, f"{ROOT}/docker/answers.py", "PORT", path]
    environment = {"PORT": str(port)}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, timeout=30)
    return done.returncode == 0


def test_the_store_is_ready_for_the_bucket(object_store: ObjectStore, tmp_path: Path) -> None:
    """Once the store is healthy, the one-shot service makes the bucket, and objects go in and out."""
    location = object_store.location
    changed = {
        "GHOSTED_S3_ENDPOINT": location.endpoint,
        "GHOSTED_S3_ACCESS_KEY": location.access_key,
        "GHOSTED_S3_SECRET_KEY": location.secret_key,
    }
    service = Outside("s3-bucket", tmp_path, changed)
    assert service.run() == 0, service.log.read_text()
    client = make_client(location)
    client.put_object(Bucket="ghosted", Key="a", Body=b"bytes")
    assert client.get_object(Bucket="ghosted", Key="a")["Body"].read() == b"bytes"
    client.close()


def test_the_store_closes_its_other_port(object_store: ObjectStore) -> None:
    """The gateway's gRPC port, which could hand out keys, speaks to nobody without the certificate."""
    with socket.create_connection((LOOPBACK, object_store.grpc_port), timeout=5) as connection:
        connection.sendall(HTTP2_PREFACE)
        answer = connection.recv(9)
    assert answer == b"" or answer[0] == TLS_ALERT
    assert answer[3:4] != bytes([HTTP2_SETTINGS])


def test_the_certificate_stays(tmp_path: Path) -> None:
    """The one-shot service keeps a certificate that is there, and only its owner can read the key."""
    _certificate(tmp_path)
    first_key = (tmp_path / "certificate.key").read_bytes()
    _certificate(tmp_path)
    assert (tmp_path / "certificate.key").read_bytes() == first_key
    assert (tmp_path / "certificate.key").stat().st_mode & 0o077 == 0
