"""The whole service on this machine: embedded parts, API, relay and worker, as long as a block lasts."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from sqlalchemy.exc import SQLAlchemyError

from ghosted_core.errors import InvalidSpecError
from services.auth import repository as keys
from services.auth.scopes import ALL_SCOPES
from services.db.migrate import upgrade
from services.db.sessions import Database, open_database
from services.embedded import Stack
from services.embedded.credentials import load_or_create
from services.embedded.errors import EmbeddedError
from services.embedded.files import write_private
from services.embedded.ports import LOOPBACK, find_free, is_free
from services.embedded.process import Child, Command, Escalation, NotReadyError
from services.embedded.s3 import S3Location
from services.embedded.stack import External
from worker.config import WorkerSettings
from worker.environment import ALLOWED

# What an operator may set; names that are no settings do not reach our processes.
SETTINGS = frozenset(f"GHOSTED_{name.upper()}" for name in WorkerSettings.model_fields)
# Our processes work in folders of their own: what is relative is so to the user's.
PATHS = ("GHOSTED_CATALOG", "GHOSTED_TASK_DATA")
KEY_FILE = "api-key"
# For `ghosted keys`, while the installation runs.
URL_FILE = "database-url"
USUAL_PORT = 8000
READY_VARIABLE = "GHOSTED_READY_FILE"
READY_SECONDS = 60.0
# A worker deletes what it has uploaded and gives its job back on SIGTERM; the others have little to finish.
STOP = (Escalation(signal.SIGTERM, 60.0),)
# What may end without harm: a worker that can take no jobs ends so that it is started anew.
RESTARTED = frozenset({"relay", "worker"})
MOST_RESTARTS, RESTARTS_SECONDS = 5, 600.0


@dataclass(frozen=True)
class Installation:
    """A running service and how to reach it."""

    url: str
    key: str = field(repr=False)
    folder: Path
    stack: Stack
    processes: tuple[Child, ...]
    say: Callable[[str], None] = field(repr=False)
    restarts: list[float] = field(default_factory=list)

    def check(self) -> None:
        """Relay and worker are started anew if they have ended.

        Raises:
            PartDiedError: another part has ended, or these do so again and again.
        """
        self.stack.check()
        for process in self.processes:
            if process.exit_code() is not None and process.command.part in RESTARTED and self._may_restart():
                self._restart(process)
            process.check()

    def _may_restart(self) -> bool:
        since = time.monotonic() - RESTARTS_SECONDS
        return sum(at > since for at in self.restarts) < MOST_RESTARTS

    def _restart(self, process: Child) -> None:
        part, log = process.command.part, process.command.log
        self.say(f"{part} has ended and is started anew; what it said last is in {log.name}.1")
        self.restarts.append(time.monotonic())
        process.stop()
        log.replace(log.with_name(f"{log.name}.1"))
        process.start()


@dataclass(frozen=True)
class Wanted:
    """What an installation is to be like; `port` None: the usual one if it is free, else any."""

    folder: Path
    cache: Path
    port: int | None = None
    device: str = "auto"
    external: External = field(default_factory=External)


@contextmanager
def run_installation(wanted: Wanted, say: Callable[[str], None]) -> Iterator[Installation]:
    """Everything runs and is ready; when the block ends, nothing of it runs.

    Data, credentials and logs stay in `wanted.folder` for the next start.

    Raises:
        EmbeddedError: a part cannot be started or does not become ready; the message says which.
    """
    say("starting PostgreSQL, Redis and S3")
    with Stack.start(wanted.folder, external=wanted.external) as stack, ExitStack() as started:
        folder = wanted.folder.resolve()
        say("bringing the database to this version's schema")
        with interrupts_unwrapped():
            _upgrade(stack.database_url)
            key = _key(folder, stack.database_url)
        started.enter_context(_told_url(folder / URL_FILE, stack.database_url))
        port = _port(wanted.port)
        environment = _environment(stack, wanted, port)
        processes = tuple(
            _start(started, name, module, folder, environment) for name, module in _programs(wanted.external)
        )
        url = f"http://{LOOPBACK}:{port}"
        say("waiting for API and worker")
        _wait(processes, url, folder)
        lasting = tuple(process for process in processes if process.command.part != "bucket")
        yield Installation(url, key, folder, stack, lasting, say)


@contextmanager
def interrupts_unwrapped() -> Iterator[None]:
    """What fails in the body because of Ctrl-C is Ctrl-C.

    In the middle of a statement SQLAlchemy takes it for a failure of the server, and raises its own error.
    """
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise KeyboardInterrupt from error
        raise


def external_parts(environment: Mapping[str, str]) -> External:
    """The servers that GHOSTED_DATABASE_URL, GHOSTED_REDIS_URL and GHOSTED_S3_* name, if any.

    Raises:
        InvalidSpecError: an object store without its keys.
    """
    endpoint = environment.get("GHOSTED_S3_ENDPOINT")
    store = None
    if endpoint:
        try:
            access, secret = environment["GHOSTED_S3_ACCESS_KEY"], environment["GHOSTED_S3_SECRET_KEY"]
        except KeyError as missing:
            raise InvalidSpecError(
                f"GHOSTED_S3_ENDPOINT is set, but {missing.args[0]} is not.",
                advice="Set GHOSTED_S3_ACCESS_KEY and GHOSTED_S3_SECRET_KEY too.",
            ) from missing
        bucket = environment.get("GHOSTED_S3_BUCKET", "ghosted")
        store = S3Location(
            endpoint, access, secret, bucket, environment.get("GHOSTED_S3_REGION", "us-east-1")
        )
    return External(
        database_url=environment.get("GHOSTED_DATABASE_URL") or None,
        redis_url=environment.get("GHOSTED_REDIS_URL") or None,
        s3=store,
    )


def _upgrade(database_url: str) -> None:
    """The database has this version's schema.

    Raises:
        EmbeddedError: it does not answer, or the address is not one of PostgreSQL.
    """
    # A port that is no number is a plain ValueError.
    try:
        upgrade(database_url)
    except (SQLAlchemyError, ValueError) as error:
        # Not the whole text: some of these errors quote the address with its password.
        raise EmbeddedError(
            f"The database cannot be brought to this version's schema ({type(error).__name__}).",
            advice="If GHOSTED_DATABASE_URL is set: is it postgresql://user:password@host/name, and does "
            "that server answer? Else see postgres.log in the data folder.",
        ) from error


def _programs(external: External) -> tuple[tuple[str, str], ...]:
    """Name and module of each process, in the order of their start."""
    bucket = (("bucket", "services.artifacts"),) if external.s3 is not None else ()
    return (*bucket, ("api", "services.api"), ("relay", "services.outbox"), ("worker", "worker"))


def _start(started: ExitStack, name: str, module: str, folder: Path, environment: dict[str, str]) -> Child:
    own = folder / name
    own.mkdir(mode=0o700, exist_ok=True)
    # A killed run leaves it, and it would say that this one is ready.
    _ready_file(own).unlink(missing_ok=True)
    child = Child(
        Command(
            part=name,
            arguments=(sys.executable, "-m", module),
            folder=own,
            log=folder / "logs" / f"{name}.log",
            environment={**environment, READY_VARIABLE: str(_ready_file(own))},
            # The worker has a job's process to end before it ends itself.
            death_signal=signal.SIGTERM if name == "worker" else signal.SIGKILL,
            escalation=STOP,
        )
    )
    started.callback(child.stop)
    child.start()
    return child


def _environment(stack: Stack, wanted: Wanted, port: int) -> dict[str, str]:
    """The settings of our processes: the user's, but for those that an installation has of its own.

    Nothing secret is an argument, which every user could read.
    """
    passed = {name: value for name, value in os.environ.items() if name in ALLOWED | SETTINGS}
    paths = {name: str(Path(passed[name]).expanduser().resolve()) for name in PATHS if passed.get(name)}
    url = f"http://{LOOPBACK}:{port}"
    own = {
        "DATABASE_URL": stack.database_url,
        "REDIS_URL": stack.redis_url,
        "S3_ENDPOINT": stack.s3.endpoint,
        "S3_PUBLIC_ENDPOINT": os.environ.get("GHOSTED_S3_PUBLIC_ENDPOINT", stack.s3.endpoint),
        "S3_ACCESS_KEY": stack.s3.access_key,
        "S3_SECRET_KEY": stack.s3.secret_key,
        "S3_BUCKET": stack.s3.bucket,
        "S3_REGION": stack.s3.region,
        "API_HOST": LOOPBACK,
        "API_PORT": str(port),
        "PUBLIC_BASE_URL": url,
        "CACHE": str(wanted.cache.resolve()),
        "DEVICE": wanted.device,
        "SECRET_KEY": load_or_create(wanted.folder.resolve()).secret_key,
        "SCRATCH": str(wanted.folder.resolve() / "worker"),
    }
    home = Path(__file__).parents[1]
    return {
        **passed,
        **paths,
        **{f"GHOSTED_{name}": value for name, value in own.items()},
        "PYTHONPATH": str(home),
        "PYTHONUNBUFFERED": "1",
    }


def _port(asked: int | None) -> int:
    """The port to listen on.

    Raises:
        InvalidSpecError: the one that was asked for is taken.
    """
    if asked is None:
        return USUAL_PORT if is_free(USUAL_PORT) else find_free(1)[0]
    if not is_free(asked):
        raise InvalidSpecError(
            f"Port {asked} is taken.", advice="Name another, or none: a free one is found."
        )
    return asked


def _key(folder: Path, database_url: str) -> str:
    """The installation's own key: the one of an earlier start if it still works, else a new one."""
    file = folder / KEY_FILE
    database = open_database(database_url)
    try:
        kept = file.read_text(encoding="ascii", errors="replace").strip() if file.exists() else ""
        return kept if _works(database, kept) else _new_key(database, file)
    finally:
        database.close()


def _works(database: Database, key: str) -> bool:
    with database.read() as session:
        found = keys.find_key(session, key)
    return found is not None and found.caller.scopes >= set(ALL_SCOPES)


def _new_key(database: Database, file: Path) -> str:
    with database.write() as session:
        key = keys.create_key(session, "ghosted up", scopes=ALL_SCOPES)
    write_private(file, key + "\n")
    return key


@contextmanager
def _told_url(file: Path, database_url: str) -> Iterator[None]:
    """While the block runs, `file` says where the database is; only its owner can read it."""
    write_private(file, database_url + "\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _ready_file(own: Path) -> Path:
    """Of the process whose folder is `own`."""
    return own / "ready"


def _wait(processes: tuple[Child, ...], url: str, folder: Path) -> None:
    by_name = {process.command.part: process for process in processes}
    if "bucket" in by_name:
        by_name.pop("bucket").wait(READY_SECONDS)
    by_name["api"].wait_ready(lambda: _probe_api(url), READY_SECONDS)
    for name in ("relay", "worker"):
        file = _ready_file(folder / name)
        by_name[name].wait_ready(lambda file=file: _probe_file(file), READY_SECONDS)  # type: ignore[misc]


def _probe_api(url: str) -> None:
    try:
        answer = httpx2.get(f"{url}/readyz", timeout=2)
    except httpx2.HTTPError as error:
        raise NotReadyError(str(error)) from error
    if not answer.is_success:
        # The answer names the parts that are not ready.
        raise NotReadyError(answer.text)


def _probe_file(path: Path) -> None:
    if not path.exists():
        raise NotReadyError("it does not take jobs yet")
