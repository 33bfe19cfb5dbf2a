import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ghosted_core.distillation import training
from ghosted_core.distillation.progress import Progress
from ghosted_core.distillation.targets import Objective
from ghosted_core.distillation.training import Heard
from ghosted_core.errors import NonFiniteError
from ghosted_core.model.families import family_of, layers_of
from ghosted_core.model.surgery import repaired_model
from ghosted_core.stage_cache.entry import Entry
from tests.distilling import lively, operators, school, settings

# One family a kind of mask and position: windows that slide, absolute positions, experts, a nested model,
# and layers that answer in tuples.
FAMILIES = ["llama", "gemma3_text", "gpt2", "qwen3_moe", "gemma3", "falcon"]


def slow_gradients(model: nn.Module, parameters: list[Tensor], place: Any) -> list[Tensor]:
    """Of the mean loss a token of a whole model that runs from its first layer on."""
    tokens, taught = place.batch(0, 1)
    for parameter in parameters:
        parameter.requires_grad_()
    logits = model(input_ids=tokens, use_cache=False).logits.flatten(0, 1)
    _, gradient = Objective().measure(logits.detach(), taught.targets, torch.full((tokens.numel(),), -1))
    logits.backward((gradient / tokens.numel()).to(logits.dtype))
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_step_from_kept_states_is_a_step_through_the_whole_model(model_type: str, tmp_path: Path) -> None:
    """The operators' gradients are those of the repaired model that runs from its embeddings on."""
    model = lively(model_type)
    place = school(model, [2, 4], tmp_path)
    place.training.backward(*place.batch(0, 1))
    found = [master.grad for master in place.student.masters]
    whole = repaired_model(model, place.plan, operators(model, place.plan).corrections)
    names = [slot.path for slot in place.student.slots]
    expected = slow_gradients(whole, [whole.get_parameter(name) for name in names], place)
    assert len(found) == len(expected) == 2
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6 * float(other.abs().max() + 1))


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "qwen3_moe"])
def test_the_projection_before_the_cut_has_its_gradient_too(model_type: str, tmp_path: Path) -> None:
    """With the layer before the cut in training, states are taken before it."""
    model = lively(model_type)
    place = school(model, [3, 4], tmp_path, settings(trainable="operator+down_proj"))
    assert place.student.depth == 2
    place.training.backward(*place.batch(0, 1))
    whole = repaired_model(model, place.plan, operators(model, place.plan).corrections)
    parameters = []
    for slot in place.student.slots:
        path, _, attribute = slot.path.rpartition(".")
        holder = whole.get_submodule(path)
        parameters.append(nn.Parameter(getattr(holder, attribute).detach().clone()))
        holder._parameters[attribute] = parameters[-1]
    for one, other in zip(place.student.masters, slow_gradients(whole, parameters, place), strict=True):
        torch.testing.assert_close(one.grad, other, rtol=1e-3, atol=1e-6 * float(other.abs().max() + 1))


@contextmanager
def counted(model: nn.Module) -> Iterator[list[int]]:
    """How many tokens each layer has worked on: counted inside of it, where one that is left out never is."""
    layers = layers_of(model, family_of(model.config.model_type))
    counts = [0] * len(layers)
    handles = []
    for index, layer in enumerate(layers):

        def count(_module: nn.Module, args: Any, kwargs: Any, index: int = index) -> None:
            state = args[0] if args else kwargs["hidden_states"]
            counts[index] += state.shape[0] * state.shape[1]

        attention = next(
            part for name, part in layer.named_children() if "attn" in name or "attention" in name
        )
        handles.append(attention.register_forward_pre_hook(count, with_kwargs=True))
    yield counts
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "gpt2"])
def test_layers_before_the_cut_never_run_in_training(model_type: str, tmp_path: Path) -> None:
    """Neither in steps nor in looks at held-out text; and what is after the cut does."""
    model = lively(model_type)
    place = school(model, [3, 4], tmp_path)
    with counted(place.student.model) as own, counted(model) as teachers:
        place.training.run()
    # One token, before the first step, shows in which form a layer answers.
    assert own[:3] in ([1, 0, 0], [0, 0, 0])
    assert own[3] > 0
    assert teachers == [0] * 6


def test_each_layer_of_the_teacher_runs_once_over_the_text(tmp_path: Path) -> None:
    """The states at the cut come from the pass that the teacher makes anyway."""
    model = lively("llama")
    with counted(model) as counts:
        school(model, [3, 4], tmp_path)
    # Nine windows of 24 tokens; one token more shows what layers answer with.
    assert [count // (9 * 24) for count in counts] == [1] * 6


def test_only_the_masters_change(tmp_path: Path) -> None:
    """The dense model and the repair are after training what they were, bit for bit."""
    model = lively("llama")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    place = school(model, [3, 4], tmp_path, settings(trainable="operator+down_proj"))
    progress = place.training.run()
    assert progress.best_point.step > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_helps_on_held_out_text(dtype: torch.dtype, tmp_path: Path) -> None:
    """In bfloat16 too, where the masters stay float32: steps far below its resolution add up."""
    model = lively("llama", dtype=dtype)
    place = school(model, [3, 4], tmp_path, settings(epochs=6))
    progress = place.training.run()
    assert progress.best_point.held_out_kl < 0.97 * progress.curve[0].held_out_kl
    assert all(tensor.dtype == torch.float32 for tensor in progress.best)


def test_float16_loses_no_gradient(tmp_path: Path) -> None:
    """Small ones are made larger on the way back: the masters' gradients are those of float32 within 5 %."""
    gradients = []
    for name, dtype in (("wide", torch.float32), ("half", torch.float16)):
        (tmp_path / name).mkdir()
        place = school(lively("llama", dtype=dtype), [3, 4], tmp_path / name)
        tokens, taught = place.batch(0, 1)
        place.training.backward(tokens, taught)
        gradients.append(place.student.masters[0].grad)
    wide, half = gradients
    assert wide is not None
    assert half is not None
    assert float((half - wide).norm() / wide.norm()) < 0.05


def test_recomputed_layers_give_the_same_bits(tmp_path: Path) -> None:
    """Where memory is short, layers run twice, and nothing else differs."""
    model = lively("llama")
    gradients = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        place = school(model, [2, 4], tmp_path / name, settings(trainable="operator+down_proj"))
        if name == "two":
            with place.student.recomputing(), counted(place.student.model) as counts:
                place.training.backward(*place.batch(0, 1))
            assert counts[1:] == [2 * 2 * 24] * 3
        else:
            place.training.backward(*place.batch(0, 1))
        gradients.append([master.grad for master in place.student.masters])
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


def test_training_that_does_not_help_ends_early_and_keeps_the_best(tmp_path: Path) -> None:
    """After `patience` looks without a better one; the weights are those of the best look."""
    wanted = settings(learning_rate=0.5, epochs=20, patience=2, evaluate_every=1)
    place = school(lively("llama"), [3, 4], tmp_path, wanted)
    before = [master.detach().clone() for master in place.student.masters]
    progress = place.training.run()
    assert progress.step == progress.best_point.step + 2 < wanted.steps
    if progress.best_point.step == 0:
        assert all(torch.equal(one, two) for one, two in zip(progress.best, before, strict=True))
    with torch.no_grad():
        for master, best in zip(place.student.masters, progress.best, strict=True):
            master.copy_(best)
    assert place.training.held_out_divergence() == progress.best_point.held_out_kl


def test_divergence_of_the_training_itself_is_an_error(tmp_path: Path) -> None:
    """Infinity is named with its step, and never kept."""
    place = school(lively("llama"), [3, 4], tmp_path)
    progress = place.training._begin()
    with torch.no_grad():
        place.student.masters[0].fill_(math.inf)
    with pytest.raises(NonFiniteError, match="Step 1 of the training"):
        place.training._step(progress, [0, 1])


def test_what_helped_before_training_diverged_is_kept(tmp_path: Path) -> None:
    """It ends there and says where; a diverging start stays an error."""
    place = school(lively("llama"), [2, 4], tmp_path, settings(evaluate_every=1))

    def look(point: Any, _is_best: Any) -> None:
        if point.step == 2:
            place.student.masters[0].data.fill_(math.inf)

    place.training.heard = Heard(place.training.heard.advance, look)
    place.training.memory = disk = Disk()
    progress = place.training.run()
    assert (progress.step, progress.best_point.step) == (2, 2)
    assert "Step 3 of the training" in str(progress.diverged)
    assert progress.seconds > 0
    assert all(torch.isfinite(best).all() for best in progress.best)
    assert disk.entries == [], "whoever goes on comes to the same end"


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Disk:
    """Remembers the last entry; may be killed after some of them."""

    killed_after: int = 10**9
    entries: list[Entry] = field(default_factory=list)

    def recall(self, read: Any) -> Progress | None:
        return read(self.entries[-1]) if self.entries else None

    def keep(self, entry: Entry) -> None:
        self.entries.append(
            Entry({name: t.detach().clone() for name, t in entry.tensors.items()}, entry.facts)
        )
        if len(self.entries) == self.killed_after:
            raise KilledError


def trained(folder: Path, disk: Disk, advance: Any = None, **changes: Any) -> tuple[Progress, list[Tensor]]:
    folder.mkdir()
    place = school(lively("llama"), [2, 4], folder, settings(evaluate_every=2, **changes))
    place.training.memory = disk
    if advance is not None:
        place.training.heard = Heard(advance, place.training.heard.look)
    return place.training.run(), [master.detach() for master in place.student.masters]


@pytest.mark.parametrize("step", [1, 4])
def test_a_killed_training_goes_on_and_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Weights, best weights and the whole curve, wherever it was killed: between two looks, or after one."""
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(training, "SAVE_SHARE", 0.0)
    expected, masters = trained(tmp_path / "whole", Disk())
    disk = Disk(killed_after=step)
    with pytest.raises(KilledError):
        trained(tmp_path / "killed", disk)
    disk.killed_after = 10**9
    found, resumed = trained(tmp_path / "resumed", disk)
    assert found.step == expected.step
    assert found.curve == expected.curve
    for ours, theirs in ((found.best, expected.best), (resumed, masters)):
        assert all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True))


def test_a_resumed_training_has_as_much_behind_it_as_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last batch of an epoch is a smaller one."""
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(training, "SAVE_SHARE", 0.0)
    whole: list[int] = []
    trained(tmp_path / "whole", Disk(), whole.append, batch_size=4)
    # The first epoch's two batches, of 4 windows and of 2, are done.
    disk = Disk(killed_after=2)
    with pytest.raises(KilledError):
        trained(tmp_path / "killed", disk, batch_size=4)
    disk.killed_after = 10**9
    resumed: list[int] = []
    trained(tmp_path / "resumed", disk, resumed.append, batch_size=4)
    assert sum(resumed) == sum(whole)


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    """Equal seeds give equal curves, another seed another one."""
    curves = []
    for index, seed in enumerate((1, 1, 2)):
        (tmp_path / str(index)).mkdir()
        place = school(lively("llama"), [3, 4], tmp_path / str(index), settings(seed=seed))
        curves.append(place.training.run().curve)
    assert curves[0] == curves[1] != curves[2]


def test_the_learning_rate_falls_to_a_twentieth(tmp_path: Path) -> None:
    """Along a half wave of the cosine; a constant one stays."""
    wanted = settings(epochs=4)
    cosine = school(lively("llama"), [3, 4], tmp_path, wanted).training
    rates = [cosine.rate(step) for step in range(wanted.steps + 1)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(wanted.learning_rate)
    assert rates[-1] == pytest.approx(wanted.learning_rate / 20)
    assert rates[wanted.steps // 2] == pytest.approx(wanted.learning_rate * (1 + 1 / 20) / 2)
