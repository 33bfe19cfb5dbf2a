"""`ghosted demo`: the main job on a small real model, from POST to download."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ghosted_cli.compress import Cache
from ghosted_cli.exits import exit_codes
from ghosted_cli.request import cache_folder
from ghosted_cli.service_progress import display, harmless, show
from ghosted_client import Client, Event, Job
from ghosted_core.errors import CheckpointError, GhostedError

if TYPE_CHECKING:
    from ghosted_cli.installation import Installation

SPEC = {
    "model": "smollm2-135m-instruct",
    "strategy": "streamline",
    "layers": 7,
    "recovery": "ghosted",
    "calibration": {"sequences": 64, "sequence_length": 512, "held_out_sequences": 4},
    "evaluation": {"windows": 16, "sequence_length": 512},
}
PROMPTS = ("The capital of France is", "Water boils when")
# A repair is worth its name if it leaves at most this share of the damage, in nats per token.
GOOD_DAMAGE_RATIO = 0.65
MANIFEST = "ghosted.json"

Out = Annotated[Path, typer.Option(help="Folder of the result; an earlier demo's is replaced.")]
Data = Annotated[Path, typer.Option(help="Folder of the demo's own service.")]


class DemoJobError(GhostedError):
    """The demo's job did not succeed."""

    code = "demo_job"
    advice = "See the logs of its service, in 'logs' of the folder that --data names: out/service by default."


def demo(out: Out = Path("out/demo"), data: Data = Path("out/service"), cache: Cache = None) -> None:
    """Start a service, compress SmolLM2 through it, fetch the result, reload it in a fresh process."""
    with exit_codes(as_json=False, interrupted="Stopped; nothing runs any more."):
        from ghosted_cli.installation import Wanted, run_installation

        _clear_earlier(out)
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        wanted = Wanted(folder=data, cache=cache_folder(cache))
        with run_installation(wanted, console.print) as service, Client(service.url, service.key) as client:
            job, events = _run_job(client, service)
            console.print(f"fetching the artifact of job {job.id}")
            client.pull(job.id, out)
        _tell(out, events)


def _clear_earlier(out: Path) -> None:
    """Remove what an earlier demo left; anything else stays, and the download will refuse to write there."""
    if (out / MANIFEST).is_file():
        shutil.rmtree(out)


def _run_job(client: Client, service: "Installation") -> tuple[Job, list[Event]]:
    """The finished job and all that happened to it, shown live.

    Raises:
        DemoJobError: it failed.
        EmbeddedError: a part of the service died meanwhile.
    """
    job = client.submit(SPEC)
    events: list[Event] = []
    with display(sys.stderr) as where:
        # Looked at every second, so that a part of the service that dies is noticed.
        for one in client.watch(job.id, poll_seconds=1.0):
            service.check()
            show([one], where)
            if isinstance(one, Job):
                job = one
            else:
                events.append(one)
    if job.state != "succeeded":
        reason = harmless(job.failure.message) if job.failure is not None else job.state
        raise DemoJobError(f"Job {job.id} did not succeed: {reason}")
    return job, events


def _tell(out: Path, events: Sequence[Event]) -> None:
    """The table, what the reloaded model says, and whether the repair is worth its name."""
    from ghosted_cli.render import comparison, fit_lines, stage_table
    from ghosted_core.checkpoint.manifest import read_manifest

    console = Console(highlight=False)
    manifest = read_manifest(out)
    console.print(comparison(manifest))
    console.print(fit_lines(manifest), markup=False, soft_wrap=True)
    console.print(stage_table(way(events)))
    _reload(out, console)
    _verdict(manifest.metrics.get("damage_ratio"), console)
    console.print(f"Checkpoint: {out}", markup=False, soft_wrap=True)


def way(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Each step of the job's way with its seconds, from the wait in the queue to the verification."""
    rows = [event.payload for event in events if event.type == "stage_finished"]
    moments = {event.type: event.at for event in events if event.type in {"submitted", "claimed"}}
    waited = (moments["claimed"] - moments["submitted"]).total_seconds()
    return [{"stage": "queue", "seconds": waited, "peak_memory_bytes": None}, *rows]


def _reload(out: Path, console: Console) -> None:
    """Verify and generate in a process that shares nothing with the one that wrote the files."""
    command = [sys.executable, "-m", "ghosted_cli", "verify", str(out), "--json"]
    for prompt in PROMPTS:
        command += ["--prompt", prompt]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode != 0:
        raise CheckpointError(f"The fresh process could not verify it: {finished.stdout or finished.stderr}")
    console.print("Reloaded in a fresh process: files, weights and logits are as written. It says:")
    for prompt, continuation in json.loads(finished.stdout)["continuations"].items():
        console.print(f"  {prompt} {harmless(' '.join(continuation.split()))}", markup=False, soft_wrap=True)


def _verdict(ratio: float | None, console: Console) -> None:
    if ratio is not None and ratio <= GOOD_DAMAGE_RATIO:
        console.print(f"The repair leaves {ratio:.0%} of the damage, on documents it was not fitted to.")
        return
    share = "an unknown share" if ratio is None else f"{ratio:.0%}"
    console.print(
        f"This run missed its mark: the repair leaves {share} of the damage, "
        f"where at most {GOOD_DAMAGE_RATIO:.0%} is expected."
    )
