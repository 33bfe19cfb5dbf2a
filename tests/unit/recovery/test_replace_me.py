from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from ghosted_core.errors import DiskFullError
from ghosted_core.recorder import Stage, StageFinished, StageProgressed, StageStarted
from ghosted_core.recovery import MlpMap
from tests.repairing import lively_llama, repaired, stored, texts_of

CUTS = [[2, 3], [1, 4, 5]]


@pytest.mark.parametrize("removed", CUTS)
def test_the_map_is_the_least_squares_fit_of_stored_activations(removed: list[int], tmp_path: Path) -> None:
    """T = argmin ||m T - (x_post - y)||, y = x_pre - m, by torch.linalg.lstsq, at each boundary."""
    model, texts = lively_llama(), texts_of(windows=6)
    _, outcomes, _ = repaired(model, removed, tmp_path, "replace_me", texts, ridge=0.0)
    assert len(outcomes) == len(removed) - 1
    for outcome in outcomes:
        assert isinstance(outcome, MlpMap)
        entering, leaving, mlp = stored(model, texts.calibration.tokens, outcome.boundary).rows
        expected = torch.linalg.lstsq(mlp, leaving - (entering - mlp)).solution
        assert_close(outcome.matrix, expected, rtol=0, atol=1e-3)
        after = entering - mlp + mlp @ expected
        direct = float((after - leaving).norm() / (leaving - entering).norm())
        assert outcome.report.relative_residual == pytest.approx(direct, rel=1e-4)


def test_the_ridge_is_the_equations(tmp_path: Path) -> None:
    """(m'm + a I) T = m'(x_post - y), a in units of the mean diagonal."""
    model, texts = lively_llama(), texts_of()
    settings = {"ridge": 0.1, "ridge_scale": "relative"}
    _, (outcome,), _ = repaired(model, [2, 3], tmp_path, "replace_me", texts, **settings)
    assert isinstance(outcome, MlpMap)
    entering, leaving, mlp = stored(model, texts.calibration.tokens, outcome.boundary).rows
    gram = mlp.mT @ mlp
    ridge = 0.1 * gram.trace() / 32 * torch.eye(32, dtype=torch.float64)
    expected = torch.linalg.solve(gram + ridge, mlp.mT @ (leaving - entering + mlp))
    assert_close(outcome.matrix, expected, rtol=0, atol=1e-4)


def test_fewer_tokens_than_channels_are_solved_all_the_same(tmp_path: Path) -> None:
    """Repeated windows too: the rank tells, and nothing is infinite."""
    texts = texts_of(windows=1, held_out=0, length=12)
    _, (outcome,), _ = repaired(lively_llama(), [2, 3], tmp_path, "replace_me", texts, ridge=0.0)
    assert isinstance(outcome, MlpMap)
    assert bool(torch.isfinite(outcome.matrix).all())
    assert outcome.report.rank == 12
    assert outcome.report.held_out_relative_residual is None


@pytest.mark.parametrize("objective", ["published", "accurate"])
def test_training_lowers_its_own_objective(objective: str, tmp_path: Path) -> None:
    """From the identity on: the distance reported is that of the activations, and below the start's."""
    model, texts = lively_llama(), texts_of()
    settings = {"objective": objective, "learning_rate": 1e-2, "batch_tokens": 64}
    _, (outcome,), _ = repaired(model, [2, 3], tmp_path, "replace_me_cosine", texts, **settings)
    assert isinstance(outcome, MlpMap)
    entering, leaving, mlp = stored(model, texts.calibration.tokens, outcome.boundary).rows

    def distance(matrix: torch.Tensor) -> float:
        beside = entering - mlp
        left, right = (
            (mlp @ matrix + beside, leaving)
            if objective == "accurate"
            else (
                mlp @ matrix,
                leaving - beside,
            )
        )
        return float((1 - functional.cosine_similarity(left, right, dim=-1)).mean())

    reached, start = distance(outcome.matrix.double()), distance(torch.eye(32, dtype=torch.float64))
    assert reached < 0.8 * start
    assert outcome.report.detail["cosine_distance"] == pytest.approx(reached, rel=1e-3)
    assert outcome.report.relative_residual > 0


def test_adam_takes_the_papers_steps(tmp_path: Path) -> None:
    """One step of Adam moves each entry of T by the learning rate, whatever the gradient's size."""
    settings = {"epochs": 1, "batch_tokens": 4096}
    _, (outcome,), _ = repaired(lively_llama(), [2, 3], tmp_path, "replace_me_cosine", **settings)
    assert isinstance(outcome, MlpMap)
    moved = (outcome.matrix - torch.eye(32)).abs()
    assert_close(moved, torch.full_like(moved, 1e-4), rtol=0.05, atol=1e-6)


def test_training_is_repeatable_and_says_how_far_it_is(tmp_path: Path) -> None:
    """Same seed, same bits; ten epochs of batches are counted one by one, at both boundaries."""
    settings = {"batch_tokens": 100}
    runs = [repaired(lively_llama(), [1, 4], tmp_path, "replace_me_cosine", **settings) for _ in range(2)]
    for one, other in zip(runs[0][1], runs[1][1], strict=True):
        assert isinstance(one, MlpMap)
        assert isinstance(other, MlpMap)
        assert torch.equal(one.matrix, other.matrix)
    events = runs[0][2].events
    started = next(e for e in events if isinstance(e, StageStarted) and e.stage is Stage.SOLVE)
    steps = [e.done for e in events if isinstance(e, StageProgressed) and e.stage is Stage.SOLVE]
    assert (started.unit, started.total) == ("steps", 2 * 10 * 3)
    assert steps == list(range(1, 61))
    assert [e.stage for e in events if isinstance(e, StageFinished)] == [Stage.CALIBRATE, Stage.SOLVE]


def test_bfloat16_activations_are_kept_as_they_are(tmp_path: Path) -> None:
    """Disk holds the model's dtype; training is in float32."""
    model = lively_llama().to(torch.bfloat16)
    _, (outcome,), _ = repaired(model, [2], tmp_path, "replace_me_cosine", epochs=1)
    assert isinstance(outcome, MlpMap)
    assert outcome.matrix.dtype == torch.float32


def test_nothing_stays_on_disk(tmp_path: Path) -> None:
    """Neither after success nor after an error."""
    repaired(lively_llama(), [2], tmp_path, "replace_me_cosine", epochs=1)
    assert list(tmp_path.iterdir()) == []


def test_too_little_disk_is_said_before_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the numbers, and nothing is left."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(DiskFullError, match="scratch"):
        repaired(lively_llama(), [2], tmp_path, "replace_me_cosine", epochs=1)
    assert list(tmp_path.iterdir()) == []
