"""Loading our own checkpoints, trusting nothing but this library's code."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ghosted_core.checkpoint import modeling_ghosted
from ghosted_core.checkpoint.guard import check_patched_configs
from ghosted_core.checkpoint.manifest import Manifest, check_files, read_manifest
from ghosted_core.checkpoint.quiet import quiet_transformers
from ghosted_core.device import is_out_of_memory
from ghosted_core.errors import CheckpointError
from ghosted_core.evaluate.generation import continuations
from ghosted_core.model.families import SUPPORTED, family_of
from ghosted_core.model.kinds import layer_kinds

# Differences of logits, relative to the largest, that another machine's kernels may bring.
TOLERANCE = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 2e-2}
# Figures without which nobody knows what a model is worth; a standard error may be unknown.
NEEDED_METRICS = ("perplexity_", "nll_dense", "nll_pruned", "nll_repaired", "nll_finetuned")


def load_patched(path: Path | str, *, device: str = "cpu", dtype: str = "auto") -> PreTrainedModel:
    """The model in the checkpoint folder `path`, in evaluation mode on `device`.

    Sizes and SHA-256 of all files are checked against the manifest first. The code file in the
    folder is never run: the library's own copy of it serves.

    Raises:
        CheckpointError: files are missing, altered or added, or tensors are missing or not finite.
        UnsafeModelError: a configuration names code, kernels or files from elsewhere.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    check_files(folder, manifest.files)
    check_patched_configs(folder)
    return _load(folder, manifest, device=device, dtype=dtype)


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A checkpoint that was read back, loaded and asked its probe."""

    folder: Path
    manifest: Manifest
    model: PreTrainedModel

    def continue_greedily(self, prompts: Sequence[str], new_tokens: int) -> dict[str, str]:
        """The greedy continuation of each prompt."""
        if not prompts:
            return {}
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False
            )
        return continuations(self.model, tokenizer, prompts, new_tokens)


def verify_checkpoint(path: Path | str, *, device: str = "cpu") -> VerifiedCheckpoint:
    """Load the checkpoint and hold it against its manifest: kinds of layers, metrics and probe.

    Raises:
        CheckpointError: as `load_patched`; a layer is of another kind than in the source; a metric is
            no number and no gate was missed; or the logits differ by more than rounding.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    model = load_patched(folder, device=device)
    _check_kinds(manifest, model)
    _check_metrics(manifest)
    _check_answers(manifest, model)
    return VerifiedCheckpoint(folder, manifest, model)


def _check_kinds(manifest: Manifest, model: PreTrainedModel) -> None:
    found = layer_kinds(model, family_of(model.config.model_type))
    if len(found) != len(manifest.layer_kinds):
        raise CheckpointError(
            f"The model has {len(found)} layers, and {len(manifest.layer_kinds)} were kept of the source."
        )
    for index, (kind, expected) in enumerate(zip(found, manifest.layer_kinds, strict=True)):
        if kind != expected:
            raise CheckpointError(f"Layer {index} is '{kind}' and was '{expected}' in the source.")


def _check_metrics(manifest: Manifest) -> None:
    if manifest.gate is not None and manifest.gate.get("passed") is False:
        # It is kept for a look at it, and its gate names what is no number.
        return
    for name, value in manifest.metrics.items():
        if name.startswith(NEEDED_METRICS) and (value is None or not math.isfinite(value)):
            raise CheckpointError(f"The metric '{name}' is no number.")


def _check_answers(manifest: Manifest, model: PreTrainedModel) -> None:
    expected = torch.tensor(manifest.probe.top_logits)
    ids = torch.tensor([manifest.probe.input_ids], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].float().cpu()
    found = logits.gather(-1, torch.tensor(manifest.probe.top_tokens))
    difference = float((found - expected).abs().max() / expected.abs().max())
    # Written so that not-a-number fails too.
    if not difference <= TOLERANCE[manifest.dtype]:
        raise CheckpointError(
            f"The loaded model answers differently: logits are off by {difference:.2g} of the largest."
        )


def _load(folder: Path, manifest: Manifest, *, device: str, dtype: str) -> PreTrainedModel:
    loader: Any = _patched_class(manifest) if manifest.operators else AutoModelForCausalLM
    with quiet_transformers(), _translated():
        loaded: Any = loader.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    model, report = loaded
    problems = {key: value for key, value in report.items() if value}
    if problems:
        raise CheckpointError(f"The weights do not fit the configuration: {problems}.")
    _require_finite(model)
    model.requires_grad_(requires_grad=False)
    model.train(mode=False)
    return cast("PreTrainedModel", model.to(device))


@contextmanager
def _translated() -> Iterator[None]:
    """Whatever transformers says of a file that it cannot use, as our error."""
    try:
        yield
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        RuntimeError,
        SafetensorError,
        StrictDataclassError,
    ) as error:
        if is_out_of_memory(error):
            raise
        raise CheckpointError(f"The checkpoint cannot be loaded: {error}") from error


def _patched_class(manifest: Manifest) -> type[PreTrainedModel]:
    # The manifest comes with the folder: it may name a class only from our own table.
    if manifest.source.architecture not in {family.architecture for family in SUPPORTED.values()}:
        raise CheckpointError(f"The manifest names an unknown architecture: {manifest.source.architecture}.")
    _, model_class = modeling_ghosted.ghosted_classes(manifest.source.architecture)
    return model_class


def _require_finite(model: PreTrainedModel) -> None:
    broken = [name for name, value in model.named_parameters() if not bool(torch.isfinite(value).all())]
    if broken:
        raise CheckpointError(f"Tensors with infinity or not-a-number: {', '.join(broken[:5])}.")
