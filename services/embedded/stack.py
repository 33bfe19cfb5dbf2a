"""PostgreSQL, Redis and S3 together: `with Stack.start(folder) as stack`."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from services.embedded.credentials import Credentials, load_or_create
from services.embedded.errors import FolderUnusableError
from services.embedded.home import postgres_home, reachable_programs, remove_postgres_home
from services.embedded.interrupts import deferred_interrupts
from services.embedded.lock import locked
from services.embedded.part import Part, Service
from services.embedded.postgres import PostgresService
from services.embedded.programs import Programs, first
from services.embedded.redis import RedisService
from services.embedded.s3 import S3Location, S3Service, remove_dead_sockets
from services.embedded.users import unprivileged_user

WATCH_SECONDS = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class External:
    """Servers of the user's own in place of parts; None: the part is embedded."""

    database_url: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    s3: S3Location | None = None


@dataclass(frozen=True)
class Stack:
    """Where the parts are, and those of them that are ours."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    s3: S3Location
    parts: tuple[Part, ...] = ()

    @classmethod
    @contextmanager
    def start(
        cls, data_folder: Path, *, external: External | None = None, programs: Programs | None = None
    ) -> Iterator[Self]:
        """A stack whose parts all work; when the body ends, however it ends, none of ours runs.

        The data and the credentials stay in `data_folder` for the next start. Call it from a thread
        that lives as long as the stack: the kernel ends a part with the thread that started it.

        Raises:
            FolderInUseError: another process uses `data_folder`.
            EmbeddedError: a part cannot be started; the message says which and why.
        """
        folder = _make_folder(data_folder)
        with locked(folder):
            started: list[Part] = []
            try:
                builder = _Builder(folder, load_or_create(folder), programs or Programs.search(), started)
                yield cls(**builder.build(external or External()), parts=tuple(started))
            finally:
                with deferred_interrupts():
                    _stop_all(started)

    def check(self) -> None:
        """Raise PartDiedError if one of our parts has ended."""
        for part in self.parts:
            part.check()

    def watch(self, until: threading.Event | None = None) -> None:
        """Return once `until` is set.

        Raises:
            PartDiedError: one of our parts ended; the message says which and why.
        """
        event = until or threading.Event()
        while not event.wait(WATCH_SECONDS):
            self.check()


def remove_stack(data_folder: Path) -> None:
    """`data_folder` and the database that may lie elsewhere are gone.

    Raises:
        FolderInUseError: another process uses `data_folder`.
    """
    if not data_folder.exists():
        return
    folder = data_folder.resolve()
    with locked(folder), deferred_interrupts():
        remove_postgres_home(folder)
        remove_dead_sockets()
        shutil.rmtree(folder)


@dataclass(frozen=True)
class _Builder:
    """Starts parts, noting each before it starts so that none is forgotten when it fails."""

    folder: Path
    credentials: Credentials
    programs: Programs
    started: list[Part]

    def build(self, external: External) -> dict[str, Any]:
        """Start what is not external, the slowest first, then wait for all; where each one is."""
        s3 = _known(external.s3) or self._start_s3()
        redis = _known(external.redis_url) or self._start_redis()
        database = _known(external.database_url) or self._start_postgres()
        for part in self.started:
            part.wait_ready()
        # Only now: a part that lost its ports while starting has others.
        return {"database_url": database(), "redis_url": redis(), "s3": s3()}

    def _start_s3(self) -> Callable[[], S3Location]:
        service = S3Service(
            program=first(self.programs.weed, "S3 (weed)"),
            folder=self.folder / "s3",
            log=self._log("s3"),
            credentials=self.credentials,
        )
        part = self._start(service)
        return lambda: service.location(part.ports)

    def _start_redis(self) -> Callable[[], str]:
        service = RedisService(
            program=first(self.programs.redis, "Redis"),
            folder=self.folder / "redis",
            log=self._log("redis"),
            password=self.credentials.redis_password,
        )
        part = self._start(service)
        return lambda: service.url(part.ports)

    def _start_postgres(self) -> Callable[[], str]:
        user = unprivileged_user()
        home = postgres_home(self.folder, user)
        service = PostgresService(
            programs=reachable_programs(self.programs.postgres, home, user),
            folder=home,
            log=self._log("postgres"),
            password=self.credentials.postgres_password,
            user=user,
        )
        part = self._start(service)
        return lambda: service.url(part.ports)

    def _start(self, service: Service) -> Part:
        part = Part(service)
        self.started.append(part)
        part.start()
        return part

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"


def _known(value: T | None) -> Callable[[], T] | None:
    return None if value is None else lambda: value


def _make_folder(data_folder: Path) -> Path:
    """The folder, made with its parents if need be; others may pass through it, not list it."""
    try:
        data_folder.mkdir(parents=True, mode=0o711, exist_ok=True)
        (data_folder / "logs").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise FolderUnusableError(f"{data_folder} cannot be used: {error.strerror}.") from error
    return data_folder.resolve()


def _stop_all(parts: list[Part]) -> None:
    """Stop in the opposite order of starting, all of them even if one cannot be stopped."""
    if not parts:
        return
    try:
        parts[-1].stop()
    finally:
        _stop_all(parts[:-1])
