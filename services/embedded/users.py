"""The user a part runs as, and what that user may do."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.embedded.errors import ProgramMissingError

# PostgreSQL's own user where the distribution made one, else the user that owns nothing.
CANDIDATES = ("postgres", "nobody", "daemon")


@dataclass(frozen=True)
class User:
    """A user by number, with one group."""

    uid: int
    gid: int


def unprivileged_user() -> User | None:
    """The user to drop to, or None where this process is no root and needs none.

    Raises:
        ProgramMissingError: the machine has none of the usual users; we never create one.
    """
    if os.geteuid() != 0:
        return None
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return User(entry.pw_uid, entry.pw_gid)
    raise ProgramMissingError(
        f"PostgreSQL refuses to run as root, and none of the users {', '.join(CANDIDATES)} exists.",
        advice="Run as an ordinary user, or set GHOSTED_DATABASE_URL.",
    )


def may(user: User | None, access: Literal["-r", "-w", "-x"], path: Path) -> bool:
    """Whether `user` has `access` to `path`, asked of the kernel as that user.

    Mode bits alone do not say: every parent folder, ACLs and read-only mounts count too.
    """
    command = ["test", access, str(path)]
    if user is None:
        return subprocess.run(command, check=False, cwd="/").returncode == 0
    answer = subprocess.run(command, check=False, cwd="/", user=user.uid, group=user.gid, extra_groups=[])
    return answer.returncode == 0
