"""A job's process on its own: the real runner and the real object store, without queue and delivery."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from safetensors.torch import load_file
from torch import Tensor

from ghosted_core.recorder import Logged
from ghosted_core.spec import JobSpec
from services.artifacts.stages import open_stages, stages_prefix
from tests.faults.jobs import Jobs
from worker.child import Child
from worker.config import WorkerSettings
from worker.environment import job_environment
from worker.keeping import StageKeeper
from worker.protocol import Result, RunRequest, Said

SCORES = "The scores were taken from an earlier run."
SUMS = "The calibration sums were taken from an earlier run."


@dataclass
class Runs:
    """Runs specs in processes of their own, each in a folder of its own below `folder`."""

    settings: WorkerSettings
    folder: Path
    said: list[Said] = field(default_factory=list)
    _count: int = 0

    def run(self, spec: JobSpec, owner_id: UUID | None = None) -> list[str]:
        """The job ran to its end; what it said of earlier runs."""
        self._count += 1
        scratch = self.out.parent
        for name in ("home", "tmp", "stages"):
            (scratch / name).mkdir(parents=True)
        request = RunRequest(
            spec=spec, out=self.out, cache=self.settings.cache, device="cpu", stages=scratch / "stages"
        )
        store = open_stages(self.settings, stages_prefix(spec, owner_id))
        keeper = StageKeeper(store, request.stages, self.settings.stage_bytes, lambda: None)
        self.said = []
        child = Child(
            "worker.runner",
            request,
            folder=scratch,
            log=scratch / "log",
            environment=job_environment(os.environ, scratch),
            stop_seconds=5,
        )
        with child:
            ended = child.listen(self.said.append, keeper)
        assert ended.last == Result(), (ended, (scratch / "log").read_text()[-2000:])
        assert len(list(request.stages.iterdir())) <= 1, "entries do not pile up between the two sides"
        return earlier([event.message for event in self.said if isinstance(event, Logged)])

    @property
    def out(self) -> Path:
        """Where the last run left its checkpoint."""
        return self.folder / f"run-{self._count}" / "checkpoint"

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The weights of the last run."""
        return load_file(self.out / "model.safetensors")


def earlier(messages: list[str]) -> list[str]:
    """Those that speak of earlier runs."""
    return [message for message in messages if "earlier run" in message]


def logs(jobs: Jobs, job_id: UUID) -> list[tuple[int, str]]:
    """The lines of the job's log, each with the number of the attempt that wrote it."""
    lines, attempt = [], 0
    for event in jobs.events(job_id):
        attempt += event.type == "claimed"
        if event.type == "log":
            lines.append((attempt, str(event.payload["message"])))
    return lines
