"""Takes the network from a process that has fetched what it needs, without any privilege.

On Linux: a seccomp filter on x86-64 and AArch64 that every thread and later child process has too.
From then on no socket but those of this machine's own (AF_UNIX, AF_NETLINK) can be made. It cannot be
taken back. Elsewhere, or where a sandbox forbids filters, the process is as it was.
"""

import ctypes
import errno
import platform
import struct
import sys
from dataclasses import dataclass

PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
# Every thread of the process, not only this one.
SECCOMP_FILTER_FLAG_TSYNC = 1
LOAD, JUMP_EQUAL, JUMP_FROM, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
# Where the kernel's struct seccomp_data keeps them.
OFFSET_CALL, OFFSET_ARCHITECTURE, OFFSET_FIRST_ARGUMENT = 0, 4, 16
# Its rings can make sockets without the call for it.
IO_URING_SETUP = 425
# Calls of the x32 form have this bit; nothing of ours uses it.
X32_BIT = 0x40000000
AF_UNIX, AF_NETLINK = 1, 16


@dataclass(frozen=True)
class Machine:
    """The numbers of an architecture: what the kernel calls it, and two of its calls."""

    architecture: int
    socket: int
    seccomp: int


MACHINES = {
    "x86_64": Machine(architecture=0xC000003E, socket=41, seccomp=317),
    "aarch64": Machine(architecture=0xC00000B7, socket=198, seccomp=277),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid_network() -> bool:
    """No thread of this process can reach another machine any more; false where the platform cannot."""
    machine = MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    code = _filter(machine)
    instructions = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(instructions, ctypes.c_void_p))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    number = ctypes.c_long(machine.seccomp)
    flags = (ctypes.c_uint(SECCOMP_SET_MODE_FILTER), ctypes.c_uint(SECCOMP_FILTER_FLAG_TSYNC))
    return bool(libc.syscall(number, *flags, ctypes.byref(program)) == 0)


def _filter(machine: Machine) -> bytes:
    """Refuses foreign forms of calls, rings, and sockets that could leave the machine; allows the rest."""
    steps = [
        (LOAD, 0, 0, OFFSET_ARCHITECTURE),
        (JUMP_EQUAL, 0, 8, machine.architecture),  # else refuse
        (LOAD, 0, 0, OFFSET_CALL),
        (JUMP_FROM, 6, 0, X32_BIT),  # refuse
        (JUMP_EQUAL, 5, 0, IO_URING_SETUP),  # refuse
        (JUMP_EQUAL, 0, 3, machine.socket),  # else allow
        (LOAD, 0, 0, OFFSET_FIRST_ARGUMENT),
        (JUMP_EQUAL, 1, 0, AF_UNIX),  # allow
        (JUMP_EQUAL, 0, 1, AF_NETLINK),  # allow, else refuse
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def may_reach_others() -> bool:
    """Whether this process can make a socket for other machines."""
    import socket

    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    except PermissionError:
        return False
    return True
