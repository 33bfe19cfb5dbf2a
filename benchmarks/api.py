"""How fast the API answers, beside a bare FastAPI that asks the same server for `SELECT 1`.

    python benchmarks/api.py [--seconds 20] [--clients 8] [--jobs 1000 1000000] [--json FILE]

One uvicorn process each, the same pool, an embedded PostgreSQL with a database for each number of
jobs; all on this machine, so the clients take their share of the processors too. The processes are
measured in turns of half a second, first one, then the other, each time in another order, so that
whatever else the machine does falls on all alike; the load before and after is printed.
Submissions are sent by `--clients` connections at once, the rest also by one alone, where the time is
that of an answer and not that of the queue before it. Polled are jobs from all over the table.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from uuid import UUID

import psycopg
import uvicorn
from fastapi import Depends, FastAPI
from psycopg import sql
from sqlalchemy import make_url, select, text

from services.auth.repository import create_key
from services.config import Settings
from services.db import migrate
from services.db.models import ApiKey, Job
from services.db.sessions import ReadSession, open_database
from services.embedded import Stack
from tests.integration.services.crowd import fill
from tests.integration.services.helpers import environment

BODY = json.dumps({"model": "owner/tiny", "layers": 2}).encode()
POLLED = 500
TURN_SECONDS = 0.5
# Turns of each kind that are not counted: pools, caches and plans fill up.
WARM_UP = 4
START_SECONDS = 180


@dataclass(frozen=True)
class Measured:
    """Answers a second, and milliseconds an answer."""

    what: str
    jobs: int
    clients: int
    per_second: float
    p10_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Target:
    """Where to send, and with which key."""

    port: int
    key: str = ""

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """A request as bytes."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body


@dataclass(frozen=True)
class Mine:
    """The requests for one process."""

    port: int
    next: Callable[[], bytes]


def bare() -> FastAPI:
    """FastAPI, the pool, `SELECT 1`: what no answer from the database can be faster than."""
    database = open_database(os.environ["GHOSTED_DATABASE_URL"])
    app = FastAPI()

    def session() -> Iterator[ReadSession]:
        with database.read() as opened:
            yield opened

    @app.get("/")
    def one(opened: Annotated[Any, Depends(session, scope="function")]) -> dict[str, int]:
        return {"one": opened.scalar(text("SELECT 1"))}

    return app


async def load(port: int, requests: Callable[[], bytes], *, clients: int, seconds: float) -> list[float]:
    """Seconds that each answer took, from `clients` connections that send one request after another."""
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def one_client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < until:
            writer.write(requests())
            await read_answer(reader)
            taken.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(one_client() for _ in range(clients)))
    return taken


async def read_answer(reader: asyncio.StreamReader) -> None:
    """The whole answer was read, and is a success."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = await reader.readexactly(int(lengths[0].split(b":")[1]))
    if status not in {200, 202}:
        raise RuntimeError(f"{status}: {body[:300]!r}")


def measure(what: str, requests: Mapping[int, Mine], *, clients: int, seconds: float) -> Iterator[Measured]:
    """The figures of one kind of request for each number of jobs, in turns, after a warm-up."""
    taken: dict[int, list[float]] = {jobs: [] for jobs in requests}
    elapsed = dict.fromkeys(requests, 0.0)
    for turn in range(WARM_UP + round(seconds / TURN_SECONDS)):
        # Whoever comes first finds the processor as something else left it.
        for jobs, mine in list(requests.items())[:: 1 if turn % 2 else -1]:
            began = time.perf_counter()
            found = asyncio.run(load(mine.port, mine.next, clients=clients, seconds=TURN_SECONDS))
            if turn >= WARM_UP:
                elapsed[jobs] += time.perf_counter() - began
                taken[jobs] += found
    for jobs, times in taken.items():
        cuts = statistics.quantiles(times, n=100)
        shares = (1000 * cuts[percent - 1] for percent in (10, 50, 99))
        one = Measured(what, jobs, clients, len(times) / elapsed[jobs], *shares)
        print(show(one), flush=True)
        yield one


def show(one: Measured) -> str:
    """A line of the table."""
    return (
        f"| {one.what} | {one.jobs:,} | {one.clients} "
        f"| {one.per_second:.0f} | {one.p10_ms:.2f} | {one.p50_ms:.2f} | {one.p99_ms:.2f} |"
    )


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def served(name: str, settings: Settings) -> Iterator[None]:
    """A process of this program serves on the port of `settings`."""
    command = [sys.executable, __file__, "--serve", name]
    with subprocess.Popen(command, env=environment(settings)) as process:
        try:
            wait_for(settings.api_port, process)
            yield
        finally:
            process.terminate()


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Something listens on `port`."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the server did not start")


def settings_of(stack: Stack, jobs: int) -> Settings:
    """A service on the stack's parts, with a database of its own."""
    name = f"jobs_{jobs}"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = make_url(stack.database_url).set(database=name).render_as_string(hide_password=False)
    migrate.upgrade(url)
    return Settings.model_validate(
        {
            "database_url": url,
            "redis_url": stack.redis_url,
            "s3_endpoint": stack.s3.endpoint,
            "s3_access_key": stack.s3.access_key,
            "s3_secret_key": stack.s3.secret_key,
            "s3_region": stack.s3.region,
            "api_port": free_port(),
            "log_level": "warning",
            # One key sends more than any user: nothing of it is to be refused, and nobody asked outside.
            "requests_per_minute": 0,
            "jobs_per_day": 0,
            "queued_jobs_per_key": 0,
            "resolve_models": False,
        }
    )


def filled(settings: Settings, jobs: int) -> tuple[Target, list[UUID]]:
    """A key that owns `jobs` jobs, and the ids of some of them."""
    database = open_database(settings.database_url.get_secret_value())
    with database.write() as session:
        key = create_key(session, "benchmark")
        owner_id = session.scalars(select(ApiKey.id)).one()
    fill(database, owner_id, jobs)
    with database.read() as session:
        sample = text("SELECT id FROM jobs ORDER BY md5(id::text) LIMIT :count")
        ids = session.scalars(select(Job.id).from_statement(sample), {"count": POLLED}).all()
    database.close()
    return Target(settings.api_port, key), list(ids)


def run(arguments: argparse.Namespace, stack: Stack) -> list[Measured]:
    """All figures; 0 jobs stands for the bare application."""
    targets: dict[int, tuple[Target, list[UUID]]] = {}
    with ExitStack() as processes:
        for jobs in arguments.jobs:
            settings = settings_of(stack, jobs)
            targets[jobs] = filled(settings, jobs)
            processes.enter_context(served("api", settings))
            if jobs == arguments.jobs[0]:
                beside = settings.model_copy(update={"api_port": free_port()})
                processes.enter_context(served("bare", beside))
        return list(of_all(arguments, targets, beside.api_port))


def of_all(
    arguments: argparse.Namespace, targets: Mapping[int, tuple[Target, list[UUID]]], bare_port: int
) -> Iterator[Measured]:
    """Polls, lists and the bare application, alone and in company; submissions in company."""
    choose = random.Random(0)  # noqa: S311 - which job is polled is no secret
    polls, lists, submissions = {}, {}, {}
    for jobs, (target, ids) in targets.items():
        asked = [target.request("GET", f"/v1/jobs/{one}") for one in ids]
        polls[jobs] = Mine(target.port, partial(choose.choice, asked))
        lists[jobs] = Mine(target.port, partial(target.request, "GET", "/v1/jobs"))
        submissions[jobs] = Mine(target.port, partial(target.request, "POST", "/v1/jobs", BODY))
    nothing = {0: Mine(bare_port, partial(Target(bare_port).request, "GET", "/"))}
    kinds = {"poll": polls, "list of 20": lists, "bare SELECT 1": nothing}
    for clients in (1, arguments.clients):
        for what, requests in kinds.items():
            yield from measure(what, requests, clients=clients, seconds=arguments.seconds)
    yield from measure("submit", submissions, clients=arguments.clients, seconds=arguments.seconds)


def serve(name: str) -> None:
    """One uvicorn process, without a line a request."""
    from services.app import create_app
    from services.config import load_settings

    settings = load_settings()
    app = bare() if name == "bare" else create_app(settings)
    uvicorn.run(app, host="127.0.0.1", port=settings.api_port, log_level="warning", access_log=False)


def ratios(found: Sequence[Measured]) -> Iterator[str]:
    """How much longer a median answer takes with the most jobs than with the fewest."""
    counts = {one.jobs for one in found} - {0}
    by_kind = {(one.what, one.jobs, one.clients): one for one in found}
    for (what, jobs, clients), few in by_kind.items():
        if jobs == min(counts):
            many = by_kind[what, max(counts), clients]
            median, undisturbed = many.p50_ms / few.p50_ms, many.p10_ms / few.p10_ms
            yield f"{what}, {clients} client(s): p50 {median:.2f} x, p10 {undisturbed:.2f} x"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 1_000_000])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", choices=["api", "bare"])
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    print(
        "| request | jobs | clients | per second | p10 ms | p50 ms | p99 ms |\n|---|---|---|---|---|---|---|"
    )
    loads = [os.getloadavg()[0]]
    with TemporaryDirectory() as folder, Stack.start(Path(folder) / "data") as stack:
        found = run(arguments, stack)
    loads.append(os.getloadavg()[0])
    print(*ratios(found), sep="\n")
    print(f"load {loads[0]:.1f} before, {loads[1]:.1f} after, on {os.cpu_count()} processors")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
