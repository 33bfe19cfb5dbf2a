"""`ghosted compress`: the whole job on this machine."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ghosted_cli.exits import exit_codes
from ghosted_cli.measuring import (
    Corpus,
    Gate,
    Latency,
    Limit,
    OnMiss,
    TaskData,
    Tasks,
    corpus_choices,
    gate_choices,
    task_choices,
)
from ghosted_cli.progress import progress_recorder
from ghosted_cli.request import (
    cache_folder,
    calibration_choice,
    finetune_choice,
    job_spec,
    local_catalog,
    model_reference,
    setting,
    strategy_choice,
    strategy_names,
    text_reference,
    without_none,
)
from ghosted_core.spec import RECOVERIES, JobSpec

RECOVERY_NAMES = ", ".join(form.model_fields["name"].default for form in RECOVERIES)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, progress on stderr.")]
Cache = Annotated[Path | None, typer.Option(help="Folder for downloads (else $GHOSTED_CACHE).")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ...; auto takes the GPU if there is one.")]
Model = Annotated[str, typer.Argument(help="Folder, GGUF file, Hub id owner/name, or alias.")]
Layers = Annotated[str | None, typer.Option(help="How many layers to remove, or which share: 25%.")]
Strategy = Annotated[
    str,
    typer.Option(
        help=f"How layers are chosen: {strategy_names()}. Settings follow the name: taylor:protect=no."
    ),
]
Revision = Annotated[str | None, typer.Option(help="Commit, branch or tag of a Hub model.")]
Remove = Annotated[str | None, typer.Option(help="Which layers instead: 3,5,8-12 (from 0).")]
Sequences = Annotated[int | None, typer.Option(help="Calibration windows.")]
SequenceLength = Annotated[int | None, typer.Option(help="Tokens in a window.")]
HeldOut = Annotated[int | None, typer.Option(help="Further windows to test the fit on.")]
Windows = Annotated[int | None, typer.Option(help="Evaluation windows.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Seed = Annotated[int, typer.Option(help="Seed of the choice of text.")]
Recovery = Annotated[str, typer.Option(help=f"How cuts are repaired: {RECOVERY_NAMES}.")]
Finetune = Annotated[
    bool, typer.Option("--finetune", help="Train the operators towards the unpruned model after the repair.")
]
FinetuneOptions = Annotated[
    str | None,
    typer.Option(
        "--finetune-with",
        help="The same with settings: epochs=1,trainable=down_proj,learning_rate=1e-3,dataset=FILE.",
    ),
]
NoEvaluation = Annotated[bool, typer.Option("--no-evaluation", help="Do not evaluate.")]


def compress(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist or be empty.")],
    layers: Layers = None,
    remove: Remove = None,
    strategy: Strategy = "streamline",
    recovery: Recovery = "ghosted",
    revision: Revision = None,
    calibration: Annotated[str | None, typer.Option(help="Text file or alias to calibrate on.")] = None,
    sequences: Sequences = None,
    sequence_length: SequenceLength = None,
    held_out: HeldOut = None,
    weighting: Annotated[str | None, typer.Option(help="uniform, skip_first or inverse_norm.")] = None,
    ridge: Annotated[
        str | None, typer.Option(help="Added to the diagonal of X'X: a number, or auto.")
    ] = None,
    solver: Annotated[str | None, typer.Option(help="cholesky or truncated.")] = None,
    fit: Annotated[str | None, typer.Option(help="Several cuts: dense or sequential.")] = None,
    finetune: Finetune = False,
    finetune_options: FinetuneOptions = None,
    evaluation: Annotated[str | None, typer.Option(help="Text file or alias to evaluate on.")] = None,
    windows: Windows = None,
    corpus: Corpus = None,
    tasks: Tasks = None,
    limit: Limit = None,
    task_data: TaskData = None,
    gate: Gate = None,
    on_miss: OnMiss = "withhold",
    latency: Latency = False,
    no_evaluation: NoEvaluation = False,
    dtype: Dtype = "auto",
    seed: Seed = 0,
    device: Device = "auto",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Remove layers from MODEL, repair the cut, measure the cost, write a checkpoint."""
    with exit_codes(as_json=as_json):
        spec = job_spec(
            {
                "model": model_reference(model, revision),
                "strategy": strategy_choice(strategy, remove),
                "layers": layers,
                "recovery": without_none(
                    {
                        "name": recovery,
                        "weighting": weighting,
                        "ridge": None if ridge is None else setting(ridge),
                        "solver": solver,
                        "fit": fit,
                    }
                ),
                "calibration": calibration_choice(calibration, sequences, sequence_length, held_out, seed),
                "finetune": finetune_choice(finetune_options, asked=finetune),
                "evaluation": None
                if no_evaluation
                else without_none(
                    {
                        "dataset": text_reference(evaluation),
                        "windows": windows,
                        "corpora": corpus_choices(corpus),
                        "tasks": task_choices(tasks, limit),
                        "gate": gate_choices(gate),
                        "on_miss": on_miss,
                        "latency": latency,
                    }
                ),
                "dtype": dtype,
            }
        )
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
