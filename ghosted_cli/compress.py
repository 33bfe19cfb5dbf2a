"""`ghosted compress`: the whole job on this machine."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ghosted_cli.exits import exit_codes
from ghosted_cli.job_options import JobOptions
from ghosted_cli.measuring import TaskData
from ghosted_cli.options import spread
from ghosted_cli.progress import progress_recorder
from ghosted_cli.request import cache_folder, job_spec, local_catalog, model_reference
from ghosted_core.spec import JobSpec

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, progress on stderr.")]
Cache = Annotated[Path | None, typer.Option(help="Folder for downloads (else $GHOSTED_CACHE).")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ...; auto takes the GPU if there is one.")]
Model = Annotated[str, typer.Argument(help="Folder, GGUF file, Hub id owner/name, or alias.")]
Revision = Annotated[str | None, typer.Option(help="Commit, branch or tag of a Hub model.")]


@spread
def compress(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist or be empty.")],
    *,
    revision: Revision = None,
    asked: JobOptions,
    task_data: TaskData = None,
    device: Device = "auto",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Remove layers from MODEL, repair the cut, measure the cost, write a checkpoint.

    Layers are chosen by 'streamline' and cuts repaired by 'ghosted', unless the options say otherwise.
    """
    with exit_codes(as_json=as_json):
        spec = job_spec({"model": model_reference(model, revision), **asked.parts()})
        run(spec, out=out, cache=cache_folder(cache), device=device, task_data=task_data, as_json=as_json)


def run(
    spec: JobSpec, *, out: Path, cache: Path, device: str, as_json: bool, task_data: Path | None = None
) -> None:
    """Run `spec` with progress on stderr and the result on stdout."""
    # torch takes seconds to import: only now, when the request is known to be sound.
    from huggingface_hub import get_token

    from ghosted_cli.render import result_document, result_table
    from ghosted_core.device import memory_faults_named, pick_device
    from ghosted_core.pipeline import RunOptions, compress as run_pipeline
    from ghosted_core.recorder import MemoryRecorder, TeeRecorder
    from ghosted_core.stage_cache import FolderStageCache

    options = RunOptions(
        out=out.expanduser(),
        cache=cache,
        device=pick_device(device),
        hub_token=get_token(),
        task_data=task_data,
        catalog=local_catalog(),
        stages=FolderStageCache(cache / "stages"),
    )
    memory = MemoryRecorder()
    with progress_recorder(sys.stderr) as progress, memory_faults_named(options.device):
        result = run_pipeline(spec, options, TeeRecorder((progress, memory)))
    if as_json:
        typer.echo(json.dumps(result_document(result, memory.events), allow_nan=False))
    else:
        result_table(result, memory.events)
