"""The embedded Redis (or Valkey)."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from services.embedded.files import make_private, write_private
from services.embedded.ports import LOOPBACK
from services.embedded.process import Command, Escalation, NotReadyError

CONFIGURATION = """\
bind {host}
port {port}
protected-mode yes
requirepass {password}
dir {folder}
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


@dataclass(frozen=True)
class RedisService:
    """A Redis that keeps every change and evicts nothing: it carries the queue."""

    program: Path
    folder: Path
    log: Path
    password: str
    port_count: int = 1
    timeout_seconds: float = 20.0

    def prepare(self) -> None:
        """The folder exists."""
        make_private(self.folder)

    def command(self, ports: Sequence[int]) -> Command:
        """Write the configuration, which holds the password, and say how to run it."""
        configuration = self.folder / "redis.conf"
        text = CONFIGURATION.format(
            host=LOOPBACK, port=ports[0], password=self.password, folder=_quoted(self.folder)
        )
        write_private(configuration, text)
        return Command(
            part="Redis",
            arguments=(str(self.program), str(configuration)),
            folder=self.folder,
            log=self.log,
            escalation=(Escalation(signal.SIGTERM, 5.0),),
        )

    def url(self, ports: Sequence[int]) -> str:
        """Where clients connect, with the password."""
        return f"redis://:{self.password}@{LOOPBACK}:{ports[0]}/0"

    def probe(self, ports: Sequence[int]) -> None:
        """Ask for a PONG, which Redis gives only after it has read its data."""
        client = redis.Redis(host=LOOPBACK, port=ports[0], password=self.password, socket_timeout=2.0)
        try:
            client.ping()
        except redis.RedisError as error:
            raise NotReadyError(str(error)) from error
        finally:
            client.close()

    def clean_up(self) -> None:
        """Redis leaves nothing."""


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
