"""Takes jobs with the settings of the environment: `python -m worker`."""

import logging
import os
import signal
import subprocess
import sys
from types import FrameType

from ghosted_core.errors import InvalidCatalogError
from ghosted_core.registry import read_registry
from services.leash import leashed
from services.logs import configure_logging
from services.readiness import hide
from worker.config import load_worker_settings
from worker.confinement import close_to_others
from worker.identity import ThisWorker, new_worker
from worker.upkeep import Upkeep

# The exit code of a worker that gave itself up; whatever started it is to start it anew.
STUCK = 3
# As a shell reports a process that was killed.
KILLED = 128
ENDING = (signal.SIGTERM, signal.SIGINT)


def main(consumer_module: str = "worker.consumer") -> int:
    """Work until SIGTERM or SIGINT; a running job then waits for another worker.

    `consumer_module` is run with the worker's name and the descriptor of its pulse, and takes messages.
    """
    # Its environment holds the credentials that a job's process, of the same user, must not have.
    close_to_others()
    settings = load_worker_settings()
    configure_logging(settings.log_level)
    try:
        # Before anything is started; the consumer reads it for its jobs.
        read_registry(settings.catalog)
    except InvalidCatalogError as error:
        sys.exit(f"{error.message} {error.hint}")
    this = new_worker(settings, os.environ)
    consumer = _start_consumer(consumer_module, this)

    def give_up() -> None:
        # What it started goes with it: nothing of it can be relied on.
        if consumer.returncode is None:
            os.killpg(consumer.pid, signal.SIGKILL)
        if settings.ready_file is not None:
            hide(settings.ready_file)
        logging.shutdown()
        os._exit(STUCK)

    return _attend(consumer, Upkeep(settings, this, give_up))


def _start_consumer(module: str, this: ThisWorker) -> "subprocess.Popen[bytes]":
    """The process that takes messages. It is told to end when this one does, however that is."""
    descriptor = this.pulse.descriptor
    return subprocess.Popen(
        [*leashed(signal.SIGTERM), sys.executable, "-m", module, this.name, str(descriptor)],
        pass_fds=(descriptor,),
        # Ctrl-C reaches this process only, which hands it on once.
        start_new_session=True,
    )


def _attend(consumer: "subprocess.Popen[bytes]", upkeep: Upkeep) -> int:
    """The exit code, once the consumer has ended."""
    told = False

    def hand_on(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        # Once: a handler that interrupts itself would wait for its own lock.
        if not told:
            told = True
            upkeep.end()
        consumer.terminate()

    for number in ENDING:
        signal.signal(number, hand_on)
    upkeep.begin()
    code = consumer.wait()
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    upkeep.end()
    upkeep.join()
    return code if code >= 0 else KILLED - code


if __name__ == "__main__":
    sys.exit(main())
