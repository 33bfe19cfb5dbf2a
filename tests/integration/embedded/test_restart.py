"""What lies in the data folder outlives the processes."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis

from services.embedded import External, Stack
from services.embedded.errors import FolderInUseError, FolderUnusableError, PartDiedError
from services.embedded.redis import RedisService
from services.embedded.s3 import make_client
from tests.integration.embedded.conftest import Holder, clutter, remains


def write_everywhere(stack: Stack) -> None:
    """Leave a value in each part."""
    with psycopg.connect(stack.database_url) as connection:
        connection.execute("CREATE TABLE kept (value text)")
        connection.execute("INSERT INTO kept VALUES ('postgres')")
    with redis.Redis.from_url(stack.redis_url) as client:
        client.set("kept", "redis")
    s3 = make_client(stack.s3)
    s3.put_object(Bucket=stack.s3.bucket, Key="kept", Body=b"s3" * 1_000_000)
    s3.close()


def read_everywhere(stack: Stack) -> tuple[object, object, object]:
    """The values that `write_everywhere` left."""
    with psycopg.connect(stack.database_url) as connection:
        row = connection.execute("SELECT value FROM kept").fetchone()
    with redis.Redis.from_url(stack.redis_url) as client:
        value = client.get("kept")
    s3 = make_client(stack.s3)
    body = s3.get_object(Bucket=stack.s3.bucket, Key="kept")["Body"].read()
    s3.close()
    return row, value, body


KEPT = (("postgres",), b"redis", b"s3" * 1_000_000)


def test_restart_keeps_data_and_credentials(data_folder: Path) -> None:
    """A second start finds the first one's data, behind the same passwords and keys."""
    with Stack.start(data_folder) as stack:
        write_everywhere(stack)
        first = (stack.redis_url.rpartition(":")[0], stack.s3.access_key, stack.s3.secret_key)
    with Stack.start(data_folder) as stack:
        assert read_everywhere(stack) == KEPT
        assert first == (stack.redis_url.rpartition(":")[0], stack.s3.access_key, stack.s3.secret_key)


def test_stop_leaves_only_data(data_folder: Path) -> None:
    """After a stop there is no process, socket, pid file or folder but the data folder's own."""
    before = clutter()
    with Stack.start(data_folder):
        during = clutter()
    after = clutter()
    assert during - before
    assert {path for path in after - before if path.is_socket()} == set()
    assert remains(data_folder, seconds=0) == ()
    assert [path for path in data_folder.rglob("*") if path.is_socket()] == []
    assert list(data_folder.rglob("postmaster.pid")) == []


def test_killed_parent_takes_all_with_it(data_folder: Path, hold: Callable[..., Holder]) -> None:
    """A parent ended by SIGKILL leaves no process, and the next start finds its data and no stale lock."""
    with Stack.start(data_folder) as stack:
        write_everywhere(stack)
    before = clutter()
    holder = hold(data_folder)
    holder.wait_ready()
    holder.end(signal.SIGKILL)
    assert remains(data_folder) == ()
    with Stack.start(data_folder) as stack:
        assert read_everywhere(stack) == KEPT
    assert not [path for path in clutter() - before if path.is_socket()]


def test_starts_while_the_killed_still_dies(data_folder: Path, hold: Callable[..., Holder]) -> None:
    """A start right after a SIGKILL of the former process waits for its parts to be gone."""
    holder = hold(data_folder)
    holder.wait_ready()
    holder.process.kill()
    holder.process.wait()
    with Stack.start(data_folder) as stack:
        stack.check()


def test_two_at_once(stack: Stack, data_folder: Path) -> None:
    """Two stacks in two folders share no port and no data."""
    with Stack.start(data_folder) as second:
        write_everywhere(second)
        ports = [port for part in (*stack.parts, *second.parts) for port in part.ports]
        assert len(set(ports)) == len(ports)
        with redis.Redis.from_url(stack.redis_url) as client:
            assert client.get("kept") is None


def test_second_process_in_a_folder(data_folder: Path, hold: Callable[..., Holder]) -> None:
    """A folder in use is refused with the number of the process that uses it."""
    holder = hold(data_folder)
    holder.wait_ready()
    with pytest.raises(FolderInUseError, match=str(holder.process.pid)), Stack.start(data_folder):
        pass


def test_file_in_place_of_folder(tmp_path: Path) -> None:
    """A data folder that is a file is refused by name."""
    (tmp_path / "file").touch()
    with pytest.raises(FolderUnusableError, match="file"), Stack.start(tmp_path / "file"):
        pass


def test_external_parts_are_not_started(stack: Stack, data_folder: Path) -> None:
    """What the user names is used as it is; only the rest is started."""
    external = External(database_url=stack.database_url, s3=stack.s3)
    with Stack.start(data_folder, external=external) as mixed:
        assert (mixed.database_url, mixed.s3) == (stack.database_url, stack.s3)
        assert [type(part.service) for part in mixed.parts] == [RedisService]
        assert mixed.redis_url != stack.redis_url


def test_all_external(stack: Stack, data_folder: Path) -> None:
    """With three servers of the user's own, nothing is started."""
    external = External(stack.database_url, stack.redis_url, stack.s3)
    with Stack.start(data_folder, external=external) as mixed:
        assert mixed.parts == ()


@pytest.mark.parametrize("name", ["PostgreSQL", "Redis", "S3"])
def test_death_is_reported(stack: Stack, data_folder: Path, name: str) -> None:
    """When a part dies, watching ends with its name, how it ended and the end of its log."""
    external = External(
        database_url=None if name == "PostgreSQL" else stack.database_url,
        redis_url=None if name == "Redis" else stack.redis_url,
        s3=None if name == "S3" else stack.s3,
    )
    with Stack.start(data_folder, external=external) as running:
        pid = running.parts[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(PartDiedError, match=f"(?s){name}.*ended by SIGKILL.*log ends with"):
            running.watch()


def test_watching_ends_when_told(stack: Stack) -> None:
    """Watching a healthy stack ends once the event is set."""
    event = threading.Event()
    event.set()
    stack.watch(event)


def test_failing_part_says_why(stack: Stack, data_folder: Path) -> None:
    """A part that cannot start is named with the end of its log, and the others are stopped."""
    external = External(s3=stack.s3)
    with Stack.start(data_folder, external=external):
        pass
    (data_folder / "redis" / "appendonly.aof").write_text("not a log of commands")
    failing = Stack.start(data_folder, external=external)
    with pytest.raises(PartDiedError, match=r"(?s)Redis ended with exit code 1.*append only file"), failing:
        pass
    assert remains(data_folder, seconds=0) == ()
