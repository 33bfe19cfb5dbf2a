"""A small model with everything a repair can meet, its text, and its activations kept in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from ghosted_core.calibration import Calibrated, repair
from ghosted_core.data import Windows
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recorder import MemoryRecorder
from ghosted_core.recovery import Outcome
from ghosted_core.spec import RECOVERIES
from ghosted_core.testing import TINY
from ghosted_core.texts import Texts

LAYERS = 6
TOKENS = torch.arange(3, 40)[None]


def lively_llama(*, tied: bool = False, seed: int = 0, **settings: Any) -> PreTrainedModel:
    """A random Llama with biases whose layers turn the stream visibly, and next to no epsilon."""
    torch.manual_seed(seed)
    named: dict[str, Any] = {**TINY, "num_hidden_layers": LAYERS, "tie_word_embeddings": tied}
    named |= {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-12, "initializer_range": 0.15}
    model = LlamaForCausalLM(LlamaConfig(**named | settings)).eval().requires_grad_(requires_grad=False)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(std=0.1)
    return model


def texts_of(*, windows: int = 6, held_out: int = 2, length: int = 40, seed: int = 0) -> Texts:
    """Random tokens."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, 320, (windows + held_out, length), generator=generator)
    return Texts(Windows(tokens[:windows], {}), Windows(tokens[windows:], {}), None)


class Untimed:
    """A meter that does not measure."""

    def restart(self) -> None:
        pass

    def seconds(self) -> float:
        return 0.0

    def peak_memory_bytes(self) -> int:
        return 0


def recovery_of(name: str, **settings: Any) -> Any:
    form = next(form for form in RECOVERIES if form.model_fields["name"].default == name)
    return form.model_validate(settings)


def repaired(
    model: PreTrainedModel,
    removed: list[int],
    scratch: Path,
    name: str,
    texts: Texts | None = None,
    **settings: Any,
) -> tuple[PruningPlan, list[Outcome], MemoryRecorder]:
    """The plan, the repair of each of its boundaries, and what was recorded meanwhile."""
    plan = PruningPlan.from_removed(removed, layer_count=LAYERS)
    recorder = MemoryRecorder()
    job = Calibrated(model, texts or texts_of(), scratch)
    return plan, repair(recovery_of(name, **settings), job, plan, recorder, Untimed()), recorder


@dataclass(frozen=True)
class Stored:
    """All activations at a boundary, float64, (windows, tokens, hidden)."""

    entering: Tensor
    leaving: Tensor
    mlp: Tensor

    @property
    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same as matrices of tokens."""
        return self.entering.flatten(0, 1), self.leaving.flatten(0, 1), self.mlp.flatten(0, 1)


@torch.no_grad()
def stored(model: PreTrainedModel, tokens: Tensor, boundary: Boundary) -> Stored:
    """By transformers' own hidden states and a hook on the MLP."""
    kept: list[Tensor] = []
    handle = model.model.layers[boundary.start - 1].mlp.register_forward_hook(
        lambda *seen: kept.append(seen[2])
    )
    last: list[Tensor] = []
    norm = model.model.norm.register_forward_pre_hook(lambda _, seen: last.append(seen[0]))
    states = list(model.model(tokens, output_hidden_states=True).hidden_states[:LAYERS])
    handle.remove()
    norm.remove()
    states.append(last[0])
    return Stored(states[boundary.start].double(), states[boundary.stop].double(), kept[0].double())
