"""Run a program that ends when its parent does: `python -I -S leash.py PARENT SIGNAL UID GID PROGRAM ARG...`.

A file of its own, free of imports from our packages, because it runs as root before the program and
without the site packages. It becomes the program, so there is no second process.

The kernel sends SIGNAL when the *thread* that started us ends, so a program is started by a thread that
lives as long as it does. Linux only; elsewhere a program outlives a parent that is killed outright.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PARENT_GONE = 75


def leashed(death_signal: signal.Signals, *, uid: int = -1, gid: int = -1) -> list[str]:
    """What to put before a program's arguments, so that it gets `death_signal` when this process ends."""
    numbers = (os.getpid(), int(death_signal), uid, gid)
    # -I and -S: neither the folder nor the site packages decide what the leash runs.
    return [sys.executable, "-I", "-S", __file__, *map(str, numbers)]


def drop_privileges(uid: int, gid: int) -> None:
    """This process is the user `uid` of the group `gid` only, for good; nothing changes at -1."""
    if uid == -1:
        return
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def tie_to(parent: int, signal_number: int) -> None:
    """The kernel will send `signal_number` here when `parent` ends; exits if it has ended already."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(PARENT_GONE)


def main(arguments: list[str]) -> None:
    """Become the program that `arguments` name."""
    parent, signal_number, uid, gid = (int(text) for text in arguments[:4])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o077)
    # In this order: changing the user clears the death signal.
    drop_privileges(uid, gid)
    tie_to(parent, signal_number)
    os.execv(arguments[4], arguments[4:])  # noqa: S606 - becoming another program is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
