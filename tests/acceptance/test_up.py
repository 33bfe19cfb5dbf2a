import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from services.embedded import Stack
from services.embedded.process import processes_in
from tests.acceptance.service_process import launch, service, wait_ready
from tests.integration.embedded.conftest import clutter, remains


def own_cluster(data: Path) -> set[Path]:
    """Where PostgreSQL keeps this service's data, if not in its folder."""
    record = data / "postgres.location"
    return {Path(record.read_text().strip())} if record.exists() else set()


def listening_addresses(data: Path) -> set[str]:
    """Local addresses on which processes of the data folder listen, as /proc has them."""
    inodes = set()
    for pid in remains(data, seconds=0):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            match = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
            if match:
                inodes.add(match[1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].split(":")[0])
    return found


def test_it_listens_on_loopback_and_ctrl_c_leaves_nothing(data: Path, real_cache: Path) -> None:
    """Every listening socket is on 127.0.0.1; after SIGINT no process and no half-made folder is left."""
    before = clutter()
    with service(data, real_cache) as running:
        assert listening_addresses(running.data) == {"0100007F"}
        assert httpx2.get(f"{running.url}/readyz").status_code == 200
        assert httpx2.get(f"{running.url}/v1/jobs").status_code == 401
        code, said = running.stop()
    assert code == 130
    assert "nothing runs any more" in said
    assert remains(data, seconds=0) == ()
    assert clutter() <= before | own_cluster(data)


@pytest.mark.parametrize("seconds", [0.3, 1.5, 3.0, 4.5])
def test_ctrl_c_while_starting_leaves_nothing(data: Path, real_cache: Path, seconds: float) -> None:
    """At whatever moment."""
    process = launch(data, real_cache)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in {130, -signal.SIGINT}
    assert remains(data, seconds=0) == ()


def test_killed_outright_it_takes_its_parts_along_and_starts_again(data: Path, real_cache: Path) -> None:
    """kill -9: the parts end by themselves, and the next start has the same key and the same data."""
    first = wait_ready(launch(data, real_cache), data)
    first.stop(signal.SIGKILL)
    assert remains(data, seconds=20) == ()
    with service(data, real_cache) as second:
        assert second.key == first.key
        answer = httpx2.get(f"{second.url}/v1/jobs", headers={"Authorization": f"Bearer {first.key}"})
        assert answer.status_code == 200


def test_two_run_side_by_side(data: Path, other_data: Path, real_cache: Path) -> None:
    """Two folders, two services; a key of one is nothing to the other; one folder is for one of them."""
    with service(data, real_cache) as one, service(other_data, real_cache) as other:
        assert one.url != other.url
        foreign = {"Authorization": f"Bearer {other.key}"}
        assert httpx2.get(f"{one.url}/v1/jobs", headers=foreign).status_code == 401
        third = launch(data, real_cache)
        said, _ = third.communicate(timeout=60)
        assert third.returncode == 10
        assert "use" in said
        assert httpx2.get(f"{one.url}/readyz").status_code == 200


@pytest.mark.parametrize(("program", "part"), [("redis", "Redis"), ("weed", "S3"), ("services.api", "api")])
def test_a_part_that_dies_is_named(data: Path, real_cache: Path, program: str, part: str) -> None:
    """The service ends with the part's name and how it ended; nothing else stays."""
    with service(data, real_cache) as running:
        victims = [
            pid
            for pid in processes_in(running.data.resolve())
            if program in Path(f"/proc/{pid}/cmdline").read_text() and Path(f"/proc/{pid}/cwd").exists()
        ]
        os.kill(victims[0], signal.SIGKILL)
        said, _ = running.process.communicate(timeout=60)
        assert running.process.returncode == 10
    assert part in said
    assert "SIGKILL" in said
    assert remains(data, seconds=0) == ()


def test_a_worker_that_ends_is_started_anew(data: Path, real_cache: Path) -> None:
    """As its watchdog counts on; the rest goes on meanwhile, and the log of the first is kept."""
    with service(data, real_cache) as running:
        first = first_of_worker(running.data)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 90
        while first_of_worker(running.data) in {None, first} or not (data / "worker" / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert running.process.poll() is None
        assert httpx2.get(f"{running.url}/readyz").status_code == 200
        assert (data / "logs" / "worker.log.1").exists()


def first_of_worker(data: Path) -> int | None:
    """The process `python -m worker`."""
    for pid in processes_in((data / "worker").resolve()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[-3:-1] == ["-m", "worker"]:
                return pid
    return None


def test_servers_of_your_own_take_the_place_of_parts(data: Path, real_cache: Path, stack: Stack) -> None:
    """With all three named, only API, relay and worker are ours."""
    external = {
        "GHOSTED_DATABASE_URL": stack.database_url,
        "GHOSTED_REDIS_URL": stack.redis_url,
        "GHOSTED_S3_ENDPOINT": stack.s3.endpoint,
        "GHOSTED_S3_ACCESS_KEY": stack.s3.access_key,
        "GHOSTED_S3_SECRET_KEY": stack.s3.secret_key,
        "GHOSTED_S3_BUCKET": "another-bucket",
    }
    with service(data, real_cache, **external) as running:
        folders = {Path(f"/proc/{pid}/cwd").readlink().name for pid in processes_in(running.data.resolve())}
        assert folders == {"api", "relay", "worker"}
        assert httpx2.get(f"{running.url}/readyz").status_code == 200
        # What made the bucket has ended, and that is no fault.
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(3)


def test_settings_of_the_operator_count(data: Path, real_cache: Path) -> None:
    """All but what the installation decides itself."""
    with service(data, real_cache, GHOSTED_METRICS="anyone", GHOSTED_API_PORT="9") as running:
        assert httpx2.get(f"{running.url}/metrics").status_code == 200
        assert not running.url.endswith(":9")


def test_a_store_without_its_keys_is_refused(data: Path, real_cache: Path) -> None:
    """Before anything starts, with the name of what is missing."""
    process = launch(data, real_cache, GHOSTED_S3_ENDPOINT="http://127.0.0.1:9")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 10
    assert "GHOSTED_S3_ACCESS_KEY" in said
    assert not (data).exists()
