"""Processes that speak the protocol in their own ways: `python -m tests.integration.worker.talkers`.

What the request's `device` says is done.
"""

import os
import signal
import subprocess
import sys
import time

from ghosted_core.errors import HarnessError, InvalidSpecError
from ghosted_core.recorder import Logged
from services.errors import StorageUnavailableError
from worker.protocol import LINE_LIMIT_BYTES, VerifyRequest
from worker.speaking import Speaker, converse


def noisy(speaker: Speaker) -> None:
    """Print in every way that a library might, between two events."""
    speaker.record(Logged("before"))
    print("from Python")  # noqa: T201 - the noise
    os.write(1, b"from C\n")
    subprocess.run(["/bin/echo", "from a program"], check=True)
    speaker.record(Logged("after"))


def refuse(_: Speaker) -> None:
    """Fail for the user's fault."""
    raise InvalidSpecError("no")


def lose_the_harness(_: Speaker) -> None:
    """Fail because a program did, which has printed something."""
    raise HarnessError("ended", output="in /srv/private")


def fade(_: Speaker) -> None:
    """Fail for a passing fault."""
    raise StorageUnavailableError("later")


def crash(_: Speaker) -> None:
    """Fail for a fault of ours."""
    raise ZeroDivisionError


def babble(speaker: Speaker) -> None:
    """Write something that is no line of the protocol."""
    speaker._pipe.write("hello\n")


def break_off(speaker: Speaker) -> None:
    """End within a line."""
    speaker._pipe.write('{"event": "Lo')
    speaker._pipe.flush()
    os._exit(0)


def die_within_a_line(speaker: Speaker) -> None:
    """Be killed while a line is longer than a pipe takes at once."""
    speaker._pipe.write('{"event": "Logged", "message": "' + 5000 * "x")
    speaker._pipe.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def endless(speaker: Speaker) -> None:
    """Write a line longer than any may be, and fail."""
    speaker._pipe.write((LINE_LIMIT_BYTES + 1) * "x")
    speaker._pipe.flush()
    os._exit(1)


def linger(speaker: Speaker) -> None:
    """Leave a program behind that nobody waits for."""
    program = subprocess.Popen(["/bin/sleep", "60"], stdout=subprocess.DEVNULL)
    speaker.record(Logged(str(program.pid)))
    os._exit(0)


def ignore(speaker: Speaker) -> None:
    """Do not listen to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    speaker.record(Logged("deaf"))
    time.sleep(60)


BEHAVIOURS = {
    "noisy": noisy,
    "refuse": refuse,
    "lose_the_harness": lose_the_harness,
    "fade": fade,
    "crash": crash,
    "babble": babble,
    "break_off": break_off,
    "die_within_a_line": die_within_a_line,
    "endless": endless,
    "linger": linger,
    "ignore": ignore,
}


def work(request: VerifyRequest, speaker: Speaker) -> None:
    """Do as the request says."""
    BEHAVIOURS[request.device](speaker)


if __name__ == "__main__":
    sys.exit(converse(VerifyRequest, work))
