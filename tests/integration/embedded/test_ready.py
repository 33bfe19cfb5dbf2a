"""A started stack works, and only for those who hold its credentials."""

import io
import re
import socket
import ssl
from dataclasses import asdict
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import psycopg
import pytest
import redis

from services.embedded import Stack
from services.embedded.credentials import load_or_create
from services.embedded.part import Part
from services.embedded.s3 import S3Service, make_client
from tests.integration.embedded.conftest import remains


def s3_part(stack: Stack) -> Part:
    """The S3 part of `stack`."""
    return next(part for part in stack.parts if isinstance(part.service, S3Service))


def folder_of(stack: Stack) -> Path:
    """The data folder of `stack`."""
    service = s3_part(stack).service
    assert isinstance(service, S3Service)
    return service.folder.parent


def listening(pid: int) -> set[str]:
    """Addresses, as the kernel writes them, on which the process `pid` listens."""
    links = (entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink())
    inodes = {str(link)[8:-1] for link in links if str(link).startswith("socket:[")}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()]
    return {line[1] for line in lines if line[3] == "0A" and line[9] in inodes}


def test_database_answers(stack: Stack) -> None:
    """The database is a PostgreSQL of version 15 or newer, empty, in UTF-8."""
    with psycopg.connect(stack.database_url) as connection:
        assert connection.info.server_version >= 150000
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert connection.execute("SHOW password_encryption").fetchone() == ("scram-sha-256",)


def test_redis_keeps_everything(stack: Stack) -> None:
    """Redis writes each change to disk and never evicts, since it carries the queue."""
    client = redis.Redis.from_url(stack.redis_url)
    settings = client.config_get("*")
    client.close()
    assert settings["appendonly"] == "yes"
    assert settings["maxmemory-policy"] == "noeviction"


def test_large_object_survives(stack: Stack) -> None:
    """An object of several parts and chunks comes back byte for byte."""
    content = bytes(range(256)) * 50_000
    client = make_client(stack.s3)
    client.upload_fileobj(io.BytesIO(content), stack.s3.bucket, "tests/large")
    got = client.get_object(Bucket=stack.s3.bucket, Key="tests/large")["Body"].read()
    client.delete_object(Bucket=stack.s3.bucket, Key="tests/large")
    client.close()
    assert got == content


def test_only_loopback(stack: Stack) -> None:
    """Each part listens, and on 127.0.0.1 only."""
    for part in stack.parts:
        assert part.pid is not None
        addresses = listening(part.pid)
        assert addresses
        assert {address.partition(":")[0] for address in addresses} == {"0100007F"}


def test_only_known_ports(stack: Stack) -> None:
    """No part listens on a port that it was not given."""
    for part in stack.parts:
        assert part.pid is not None
        assert {int(address.partition(":")[2], 16) for address in listening(part.pid)} <= set(part.ports)


def test_database_wants_password(stack: Stack) -> None:
    """PostgreSQL refuses a wrong password."""
    wrong = re.sub(r":[^:@]+@", ":wrong@", stack.database_url)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_redis_wants_password(stack: Stack) -> None:
    """Redis refuses commands without the password."""
    client = redis.Redis.from_url(re.sub(r":[^:@]+@", "", stack.redis_url))
    with client, pytest.raises(redis.AuthenticationError):
        client.set("evil", "1")


@pytest.mark.parametrize("index", range(8))
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/ghosted/evil"),
        ("PUT", "/buckets/ghosted/evil"),
        ("POST", "/1,0101010101"),
        ("GET", "/buckets/ghosted/"),
        ("GET", "/dir/assign"),
        ("GET", "/col/delete?collection=none"),
    ],
)
def test_s3_ports_are_closed(stack: Stack, index: int, method: str, path: str) -> None:
    """No port of the object store does anything for a request without credentials."""
    port = s3_part(stack).ports[index]
    request = Request(f"http://127.0.0.1:{port}{path}", data=b"x" if method != "GET" else None, method=method)
    with pytest.raises((HTTPError, URLError, OSError)) as caught:
        urlopen(request, timeout=5)  # noqa: S310 - http by its first letters
    if isinstance(caught.value, HTTPError):
        caught.value.close()
        assert caught.value.code in {400, 401, 403, 404, 405}


@pytest.mark.parametrize("index", [1, 3, 5, 7])
def test_grpc_wants_certificate(stack: Stack, index: int) -> None:
    """The gRPC ports of the object store end a connection that shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    refused = pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED")
    plain = socket.create_connection(("127.0.0.1", s3_part(stack).ports[index]), timeout=5)
    with plain, refused, context.wrap_socket(plain) as secure:
        # In TLS 1.3 the server's refusal arrives with the first thing read.
        secure.recv(1)


def test_no_secret_in_arguments(stack: Stack) -> None:
    """No user of the machine can read a credential off the list of processes."""
    folder = folder_of(stack)
    secrets = asdict(load_or_create(folder)).values()
    for part in stack.parts:
        arguments = Path(f"/proc/{part.pid}/cmdline").read_text()
        assert not [secret for secret in secrets if secret in arguments]


def test_files_are_private(stack: Stack) -> None:
    """Only their owner may read the files of the stack."""
    folder = folder_of(stack)
    open_to_others = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o077 and path.parent.stat().st_mode & 0o077
    ]
    assert not open_to_others


def test_secrets_are_not_shown(stack: Stack) -> None:
    """The representation of a stack, which ends up in logs, holds no credential."""
    password = stack.redis_url.partition(":")[2][3:].partition("@")[0]
    for secret in (password, stack.s3.secret_key, stack.s3.access_key):
        assert secret
        assert secret not in repr(stack)


def test_something_runs_while_it_is_up(stack: Stack) -> None:
    """The helper that finds remains finds the processes of a running stack."""
    folder = folder_of(stack)
    assert {part.pid for part in stack.parts} <= set(remains(folder, seconds=0))
