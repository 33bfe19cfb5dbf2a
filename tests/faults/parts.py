"""The parts of an embedded stack, stopped, frozen and started again on the ports they had."""

import os
import signal
from dataclasses import dataclass

from services.embedded import Stack
from services.embedded.part import Part
from services.embedded.postgres import PostgresService
from services.embedded.process import Child, processes_in
from services.embedded.redis import RedisService
from services.embedded.s3 import S3Service


@dataclass(frozen=True)
class Controlled:
    """One part. Call it from the thread that holds the stack: a part ends with the thread that started it."""

    part: Part

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """The part does not run."""
        pid = self.part.pid
        assert pid is not None
        os.kill(pid, number)
        self.part.stop()

    def start(self) -> None:
        """The part works, where it was."""
        service = self.part.service
        service.prepare()
        self.part._child = Child(service.command(self.part.ports))
        self.part._child.start()
        self.part._child.wait_ready(self.part._probe, service.timeout_seconds)

    def restart(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Stop, then start."""
        self.stop(number)
        self.start()

    def freeze(self) -> None:
        """No process of the part does anything; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """All go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.part._child is not None
        for pid in processes_in(self.part._child.command.folder.resolve()):
            os.kill(pid, number)


@dataclass(frozen=True)
class Parts:
    """The three."""

    postgres: Controlled
    redis: Controlled
    s3: Controlled

    @classmethod
    def of(cls, stack: Stack) -> "Parts":
        """The parts of `stack`, by kind."""

        def find(kind: type) -> Controlled:
            return Controlled(next(part for part in stack.parts if isinstance(part.service, kind)))

        return cls(find(PostgresService), find(RedisService), find(S3Service))
