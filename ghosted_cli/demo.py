"""`ghosted demo`: the main job on a small real model, from nothing but this package."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ghosted_cli.compress import Cache, run
from ghosted_cli.exits import exit_codes
from ghosted_cli.request import cache_folder, job_spec
from ghosted_core.errors import CheckpointError

MODEL = "smollm2-135m-instruct"
SPEC = {
    "model": MODEL,
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


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the result; an earlier demo's is replaced.")] = Path(
        "out/demo"
    ),
    cache: Cache = None,
) -> None:
    """Remove 7 of SmolLM2's 30 layers, repair the cut, evaluate, reload in a fresh process."""
    with exit_codes(as_json=False):
        _clear_earlier(out)
        run(job_spec(SPEC), out=out, cache=cache_folder(cache), device="auto", as_json=False)
        _reload(out)
        _verdict(out)


def _clear_earlier(out: Path) -> None:
    """Remove what an earlier demo left; anything else stays, and the job will refuse to write there."""
    if (out / MANIFEST).is_file():
        shutil.rmtree(out)


def _reload(out: Path) -> None:
    """Verify and generate in a process that shares nothing with the one that wrote the files."""
    command = [sys.executable, "-m", "ghosted_cli", "verify", str(out), "--json"]
    for prompt in PROMPTS:
        command += ["--prompt", prompt]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode != 0:
        raise CheckpointError(f"The fresh process could not verify it: {finished.stdout or finished.stderr}")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print("\nReloaded in a fresh process: files, weights and logits are as written. It says:")
    for prompt, continuation in json.loads(finished.stdout)["continuations"].items():
        console.print(f"  {prompt}{continuation!r}"[:160])


def _verdict(out: Path) -> None:
    ratio = json.loads((out / MANIFEST).read_text(encoding="utf-8"))["metrics"].get("damage_ratio")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if ratio is not None and ratio <= GOOD_DAMAGE_RATIO:
        console.print(f"\nThe repair leaves {ratio:.0%} of the damage, on documents it was not fitted to.")
        return
    console.print(
        f"\nThis run missed its mark: the repair leaves {ratio if ratio is not None else 'an unknown share'} "
        f"of the damage, where at most {GOOD_DAMAGE_RATIO} is expected."
    )
