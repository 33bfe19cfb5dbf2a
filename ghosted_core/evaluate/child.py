"""What a process that works for another makes of its pipes: one request comes in, one way leads back."""

import os
import threading
from io import FileIO
from typing import IO

# The file in the working folder that holds the request of a process that is asked once.
REQUEST = "request.json"


def own_stdin() -> FileIO:
    """What is stdin now, for us alone and without a lock; whoever else reads it finds nothing.

    A thread waits in it all the time. Processes that are forked meanwhile close `sys.stdin`, and would
    wait for ever for a lock that the thread holds.
    """
    own = FileIO(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return own


def own_stdout() -> IO[str]:
    """What is stdout now, for us alone; what anybody prints goes to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def end_with(asked: FileIO) -> None:
    """From now on this process ends when nobody holds the other end of `asked`: nobody needs its answer."""
    threading.Thread(target=_wait_and_end, args=(asked,), daemon=True).start()


def _wait_and_end(asked: FileIO) -> None:
    asked.read()
    os._exit(1)
