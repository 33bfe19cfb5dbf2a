"""The process that runs one job: `python -m worker.runner`. It has no credentials."""

import sys
from dataclasses import replace

from ghosted_core.recorder import Event, Recorder, Stage, StageFinished
from worker.confinement import leave_network
from worker.protocol import ExitCode, RunRequest
from worker.speaking import Speaker, converse


def run(request: RunRequest, speaker: Speaker) -> None:
    """The checkpoint lies at `request.out`.

    Raises:
        GhostedError: the job cannot be done.
    """
    # Only here: loading torch takes seconds, and the pipe must be ours before anything prints.
    from ghosted_core.device import memory_faults_named, pick_device
    from ghosted_core.pipeline import RunOptions, compress
    from worker.asking import AskingStageCache

    options = RunOptions(
        out=request.out,
        cache=request.cache,
        device=pick_device(request.device),
        catalog=replace(request.registry.catalog(), uploads=request.uploads),
        hub_token=None if request.hub_token is None else request.hub_token.get_secret_value(),
        stages=AskingStageCache(request.stages, speaker),
        task_data=request.task_data,
    )
    with memory_faults_named(options.device):
        compress(request.spec, options, Confining(speaker))


class Confining:
    """Hands events on, and takes the network from this process once everything has been fetched."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def record(self, event: Event) -> None:
        """Tell of `event`; nothing is fetched after the stage that loads."""
        self._recorder.record(event)
        if isinstance(event, StageFinished) and event.stage == Stage.LOAD:
            leave_network()


def main() -> ExitCode:
    """Run the job that stdin asks for."""
    return converse(RunRequest, run)


if __name__ == "__main__":
    sys.exit(main())
