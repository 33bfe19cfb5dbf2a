"""The process that reads an uploaded checkpoint back: `python -m worker.verifier`. It has no credentials."""

import sys

from worker.confinement import leave_network
from worker.errors import OutOfMemoryError
from worker.protocol import ExitCode, VerifyRequest
from worker.speaking import Speaker, converse


def verify(request: VerifyRequest, _speaker: Speaker) -> None:
    """The files are those of the manifest, load completely, and answer as they did when they were made.

    Raises:
        CheckpointError: they do not.
    """
    leave_network()
    import torch

    from ghosted_core.checkpoint.patched import verify_checkpoint
    from ghosted_core.device import pick_device

    try:
        verify_checkpoint(request.folder, device=pick_device(request.device))
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemoryError("Loading the finished checkpoint needs more memory than there is.") from error


def main() -> ExitCode:
    """Verify the folder that stdin names."""
    return converse(VerifyRequest, verify)


if __name__ == "__main__":
    sys.exit(main())
