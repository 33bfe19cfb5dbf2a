"""The embedded PostgreSQL."""

import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from services.embedded.files import write_private
from services.embedded.ports import LOOPBACK
from services.embedded.process import Child, Command, Escalation, NotReadyError, end_processes_in
from services.embedded.programs import PostgresPrograms
from services.embedded.users import User

NAME = "ghosted"
INITDB_SECONDS = 120.0

SETTINGS = {
    "listen_addresses": LOOPBACK,
    # TCP with a password is the only way in, so there is no socket to leave behind.
    "unix_socket_directories": "",
    # Shared memory segments in the data folder instead of /dev/shm: they go with it.
    "dynamic_shared_memory_type": "mmap",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True)
class PostgresService:
    """A PostgreSQL whose cluster lies in `folder`, run as `user` (None: as we are)."""

    programs: PostgresPrograms
    folder: Path
    log: Path
    password: str = field(repr=False)
    user: User | None = None
    port_count: int = 1
    timeout_seconds: float = 60.0

    @property
    def cluster(self) -> Path:
        """The data directory in PostgreSQL's sense."""
        return self.folder / "cluster"

    def prepare(self) -> None:
        """The cluster exists, whole, and nobody works in it."""
        end_processes_in(self.folder)
        if not self.cluster.exists():
            self._initialise()
        _remove_foreign_pid_file(self.cluster)

    def command(self, ports: Sequence[int]) -> Command:
        """How to run the server. SIGINT is its fast shutdown: SIGTERM waits for open connections."""
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        return Command(
            part="PostgreSQL",
            arguments=(
                str(self.programs.folder / "postgres"),
                "-D",
                str(self.cluster),
                f"--port={ports[0]}",
                *settings,
            ),
            folder=self.folder,
            log=self.log,
            user=self.user,
            # At once, without a last checkpoint: the next start recovers from the log.
            death_signal=signal.SIGQUIT,
            escalation=(Escalation(signal.SIGINT, 15.0), Escalation(signal.SIGQUIT, 8.0)),
        )

    def url(self, ports: Sequence[int]) -> str:
        """Where clients connect, with the password."""
        return f"postgresql://{NAME}:{self.password}@{LOOPBACK}:{ports[0]}/{NAME}"

    def probe(self, ports: Sequence[int]) -> None:
        """Make the database if it is missing, and run a query in it."""
        try:
            with self._connect(ports, "postgres") as connection:
                _create_database(connection)
            with self._connect(ports, NAME) as connection:
                connection.execute("SELECT 1").fetchone()
        except psycopg.OperationalError as error:
            raise NotReadyError(str(error)) from error

    def clean_up(self) -> None:
        """PostgreSQL leaves nothing."""

    def _connect(self, ports: Sequence[int], database: str) -> psycopg.Connection:
        return psycopg.connect(
            host=LOOPBACK,
            port=ports[0],
            user=NAME,
            password=self.password,
            dbname=database,
            autocommit=True,
            connect_timeout=5,
        )

    def _initialise(self) -> None:
        """Make the cluster under another name first: an interrupted attempt is never taken for one."""
        partial = self.folder / "cluster.partial"
        shutil.rmtree(partial, ignore_errors=True)
        password_file = self.folder / "password"
        write_private(password_file, self.password + "\n", owner=self.user)
        initdb = Child(self._initdb(partial, password_file))
        try:
            initdb.start()
            if initdb.wait(INITDB_SECONDS) != 0:
                initdb.check()
            partial.rename(self.cluster)
        finally:
            initdb.stop()
            password_file.unlink(missing_ok=True)
            shutil.rmtree(partial, ignore_errors=True)

    def _initdb(self, cluster: Path, password_file: Path) -> Command:
        return Command(
            part="PostgreSQL's initdb",
            arguments=(
                str(self.programs.folder / "initdb"),
                "-D",
                str(cluster),
                f"--username={NAME}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-locale",
            ),
            folder=self.folder,
            log=self.log,
            user=self.user,
            escalation=(Escalation(signal.SIGTERM, 5.0),),
        )


def _create_database(connection: psycopg.Connection) -> None:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (NAME,)).fetchone()
    if found is None:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NAME)))


def _remove_foreign_pid_file(cluster: Path) -> None:
    """Remove the pid file of a killed run if its number is another program's by now.

    PostgreSQL would take that program for a running server. Where no program has the number,
    the file stays: PostgreSQL finds its old shared memory through it.
    """
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    first_line = pid_file.read_text().partition("\n")[0].strip()
    if not first_line.isdigit() or Path("/proc", first_line).exists():
        # Nobody works in the folder (`prepare`), so it cannot be a server of this cluster.
        pid_file.unlink()
