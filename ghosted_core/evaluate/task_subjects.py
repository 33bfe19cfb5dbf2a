"""The models of a job in another process: made anew of the same files and the same operators."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core.checkpoint.load import load_model, load_tokenizer
from ghosted_core.checkpoint.patched import load_patched
from ghosted_core.evaluate.task_protocol import Subject
from ghosted_core.model.surgery import pruned_model, repaired_model
from ghosted_core.plan import Boundary, PruningPlan

CORRECTION = "correction"
REPLACED = "replaced"


def save_repair(path: Path, corrections: Mapping[Boundary, Tensor], replaced: Mapping[str, Tensor]) -> None:
    """The repair lies in a safetensors file, to be read by `load_subject`."""
    tensors = {f"{CORRECTION}.{b.start}.{b.stop}": value for b, value in corrections.items()}
    tensors |= {f"{REPLACED}.{name}": value for name, value in replaced.items()}
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)


def load_subject(subject: Subject) -> tuple[dict[str, PreTrainedModel], PreTrainedTokenizerBase]:
    """The variants asked for, by name, and their tokenizer.

    Raises:
        GhostedError: the model cannot be loaded.
    """
    tokenizer = load_tokenizer(subject.source)
    if subject.is_checkpoint:
        model = load_patched(subject.source.path, device=subject.device, dtype=subject.dtype)
        return dict.fromkeys(subject.variants, model), tokenizer
    dense = load_model(subject.source, dtype=subject.dtype, device=subject.device)  # type: ignore[arg-type]
    return {name: _variant(name, dense, subject) for name in subject.variants}, tokenizer


def _variant(name: str, dense: PreTrainedModel, subject: Subject) -> PreTrainedModel:
    if name == "dense":
        return dense
    plan = PruningPlan.from_removed(subject.removed, layer_count=subject.layer_count)
    repair = subject.trained if name == "finetuned" else subject.repair
    if name == "pruned" or repair is None:
        return pruned_model(dense, plan)
    corrections, replaced = read_repair(repair)
    return repaired_model(dense, plan, corrections, replaced)


def read_repair(path: Path) -> tuple[dict[Boundary, Tensor], dict[str, Tensor]]:
    """What `save_repair` wrote: corrections by boundary, and new values of tensors of the source."""
    corrections: dict[Boundary, Tensor] = {}
    replaced: dict[str, Tensor] = {}
    for name, tensor in load_file(path).items():
        kind, _, rest = name.partition(".")
        if kind == CORRECTION:
            start, stop = rest.split(".")
            corrections[Boundary(int(start), int(stop))] = tensor
        else:
            replaced[rest] = tensor
    return corrections, replaced
