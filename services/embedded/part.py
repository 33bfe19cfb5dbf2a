"""A part of the stack: a service on free loopback ports, started again if a port was lost meanwhile."""

from collections.abc import Sequence
from typing import Protocol

from services.embedded.errors import EmbeddedError, PartDiedError
from services.embedded.ports import any_taken, find_free
from services.embedded.process import Child, Command, end_processes_in

ATTEMPTS = 4


class Service(Protocol):
    """What one kind of part needs, without the process."""

    @property
    def port_count(self) -> int:
        """How many ports it listens on."""

    @property
    def timeout_seconds(self) -> float:
        """How long it may take to become ready."""

    def prepare(self) -> None:
        """Everything lies ready that does not depend on ports; no process of it runs."""

    def command(self, ports: Sequence[int]) -> Command:
        """The configuration for `ports` is written; this runs it."""

    def probe(self, ports: Sequence[int]) -> None:
        """Return if the service did real work just now, else raise NotReadyError."""

    def clean_up(self) -> None:
        """Nothing is left of a process that has ended, but its data and its log."""


class Part:
    """A service with its process and ports."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.ports: tuple[int, ...] = ()
        self._child: Child | None = None

    def start(self) -> None:
        """The process runs; it need not be ready."""
        self.service.prepare()
        self._launch()

    def wait_ready(self) -> None:
        """The service works.

        Raises:
            PartDiedError: it ended by itself, and not for a lost port.
            PartNotReadyError: it took too long.
        """
        for _ in range(ATTEMPTS):
            try:
                return self._running.wait_ready(self._probe, self.service.timeout_seconds)
            except PartDiedError:
                # Decided by looking, not by the words of a log: did somebody take a port of ours?
                if not any_taken(self.ports):
                    raise
            self.stop()
            self._launch()
        raise EmbeddedError(f"{self._running.command.part} lost its ports {ATTEMPTS} times in a row.")

    def check(self) -> None:
        """Raise PartDiedError if the process has ended."""
        self._running.check()

    def stop(self) -> None:
        """The process has ended, and only data and log are left of it. Harmless at any time."""
        if self._child is None:
            return
        self._child.stop()
        self.service.clean_up()

    @property
    def pid(self) -> int | None:
        """The process number, None before the start."""
        return self._child.pid if self._child else None

    @property
    def _running(self) -> Child:
        if self._child is None:
            raise EmbeddedError("This part was never started.")
        return self._child

    def _launch(self) -> None:
        self.ports = find_free(self.service.port_count)
        command = self.service.command(self.ports)
        end_processes_in(command.folder)
        self._child = Child(command)
        self._child.start()

    def _probe(self) -> None:
        self.service.probe(self.ports)
