"""Files and folders that only their owner may read."""

import os
from pathlib import Path

from services.embedded.users import User


def write_private(path: Path, text: str, *, owner: User | None = None) -> None:
    """`path` holds exactly `text`, with mode 0600; at no moment does it hold a part of it."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    if owner is not None:
        os.chown(partial, owner.uid, owner.gid)
    partial.replace(path)


def make_private(folder: Path, *, owner: User | None = None) -> Path:
    """`folder` exists with mode 0700 and the given owner; its parents are left as they are."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    if owner is not None:
        os.chown(folder, owner.uid, owner.gid)
    return folder
