"""Which worker this is."""

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from worker.config import WorkerSettings
from worker.machine import scratch_root
from worker.place import Place, find_place
from worker.pulse import Pulse


@dataclass(frozen=True)
class ThisWorker:
    """Its name in the list of workers, where its jobs run, and what its processes share."""

    name: str
    place: Place
    pulse: Pulse


def new_worker(settings: WorkerSettings, outer: Mapping[str, str]) -> ThisWorker:
    """A worker under a name that people recognise and no other worker has or had.

    Raises:
        DeviceMissingError: the device of the settings is not there.
    """
    # In a container host and process number are the same again after each restart.
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    return ThisWorker(name, _place(settings, outer), Pulse.new())


def same_worker(settings: WorkerSettings, outer: Mapping[str, str], name: str, descriptor: int) -> ThisWorker:
    """The worker `name`, in another of its processes; `descriptor` is that of the pulse."""
    return ThisWorker(name, _place(settings, outer), Pulse(descriptor))


def _place(settings: WorkerSettings, outer: Mapping[str, str]) -> Place:
    return find_place(settings.device, outer, scratch_root(settings.scratch))
