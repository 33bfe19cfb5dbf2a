"""A process that holds a stack: `holder.py FOLDER`; says READY, then waits for a signal.

It handles signals as `ghosted up` does: SIGINT and SIGTERM both end the body.
"""

import json
import signal
import sys
from pathlib import Path

from services.embedded import Stack


def main(folder: Path) -> None:
    """Hold a stack in `folder`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Stack.start(folder) as stack:
        found = {
            "database_url": stack.database_url,
            "redis_url": stack.redis_url,
            "pids": [part.pid for part in stack.parts],
        }
        print("READY", json.dumps(found), flush=True)  # noqa: T201 - its protocol
        stack.watch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
