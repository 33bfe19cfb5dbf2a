"""The process that runs one job: `python -m worker.runner`. It has no credentials."""

import sys
from dataclasses import replace

from ghosted_core.catalog import builtin_catalog
from worker.errors import OutOfMemoryError
from worker.protocol import ExitCode, RunRequest
from worker.speaking import Speaker, converse


def run(request: RunRequest, speaker: Speaker) -> None:
    """The checkpoint lies at `request.out`.

    Raises:
        GhostedError: the job cannot be done.
    """
    # Only here: loading torch takes seconds, and the pipe must be ours before anything prints.
    import torch

    from ghosted_core.device import pick_device
    from ghosted_core.pipeline import RunOptions, compress

    options = RunOptions(
        out=request.out,
        cache=request.cache,
        device=pick_device(request.device),
        catalog=replace(builtin_catalog(), uploads=request.uploads),
        hub_token=None if request.hub_token is None else request.hub_token.get_secret_value(),
    )
    try:
        compress(request.spec, options, speaker)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemoryError(f"The job needs more memory than '{options.device}' has.") from error


def main() -> ExitCode:
    """Run the job that stdin asks for."""
    return converse(RunRequest, run)


if __name__ == "__main__":
    sys.exit(main())
