"""The place where a command looks at models, with progress on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ghosted_cli.progress import progress_recorder
from ghosted_cli.request import local_catalog

if TYPE_CHECKING:
    from ghosted_core.workplace import Workplace


@contextmanager
def working(cache: Path, device: str) -> Iterator["Workplace"]:
    """The user's folders, device and Hub access; progress is shown as long as the block lasts.

    Raises:
        InvalidSpecError: there is no such device here.
        OutOfMemoryError: what is done there needs more memory than there is.
    """
    # torch takes seconds to import: only now, when the request is known to be sound.
    from huggingface_hub import get_token

    from ghosted_core.device import memory_faults_named, pick_device
    from ghosted_core.workplace import Workplace

    chosen = pick_device(device)
    with progress_recorder(sys.stderr) as progress, memory_faults_named(chosen):
        yield Workplace(
            cache=cache, recorder=progress, device=chosen, hub_token=get_token(), catalog=local_catalog()
        )
