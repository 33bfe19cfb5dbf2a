from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ghosted_core.calibration import gather_statistics
from ghosted_core.data import Windows, batches
from ghosted_core.errors import DataError
from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recovery import RecoverySolver, solver_for
from ghosted_core.statistics import BoundaryStatistics, StatisticsRequest
from ghosted_core.statistics_file import load_statistics, save_statistics
from tests.repairing import LAYERS, lively_llama, recovery_of, texts_of

SUMMED = ("ghosted", "linear_patch_diag", "linear_patch_rotate", "replace_me")


def everything(tokens: torch.Tensor) -> dict[Boundary, BoundaryStatistics]:
    """All sums of all repairs at two boundaries."""
    request = StatisticsRequest()
    for name in SUMMED:
        solver = solver_for(recovery_of(name))
        assert isinstance(solver, RecoverySolver)
        request |= solver.request
    plan = PruningPlan.from_removed([1, 3, 4], layer_count=LAYERS)
    stream = ResidualStream(lively_llama(), family_of("llama"))
    return gather_statistics(stream, plan, request, "skip_first", batches(Windows(tokens, {})))


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path) -> None:
    """Tensors, energies, counts and the request itself."""
    before = everything(texts_of().calibration.tokens)
    save_statistics(tmp_path / "sums.safetensors", before)
    after = load_statistics(tmp_path / "sums.safetensors")
    assert list(after) == list(before)
    for boundary, sums in before.items():
        found = after[boundary]
        assert found.request == sums.request
        assert (found.energies, found.openings) == (sums.energies, sums.openings)
        assert (found.tokens, found.windows) == (sums.tokens, sums.windows)
        for mine, theirs in ((found.products, sums.products), (found.ratios, sums.ratios)):
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(mine[pair], theirs[pair]) for pair in mine)
    assert [file.name for file in tmp_path.iterdir()] == ["sums.safetensors"]


def test_two_halves_saved_apart_give_the_operator_of_the_whole(tmp_path: Path) -> None:
    """Data-parallel calibration: gather, save, load, merge, solve."""
    tokens = texts_of(windows=8).calibration.tokens
    for index, half in enumerate((tokens[:3], tokens[3:])):
        save_statistics(tmp_path / f"{index}.safetensors", everything(half))
    one, other = (load_statistics(tmp_path / f"{index}.safetensors") for index in range(2))
    whole = everything(tokens)
    for name in SUMMED:
        solver = solver_for(recovery_of(name))
        assert isinstance(solver, RecoverySolver)
        for boundary, sums in whole.items():
            nothing = BoundaryStatistics(sums.request)
            merged = one[boundary].merge(other[boundary])
            expected = solver.solve(boundary, sums, nothing)
            found = solver.solve(boundary, merged, nothing)
            for field in ("correction", "matrix"):
                if hasattr(expected, field):
                    torch.testing.assert_close(
                        getattr(found, field), getattr(expected, field), rtol=1e-6, atol=1e-8
                    )
            assert found.report.tokens == expected.report.tokens == 8 * 39


def test_nothing_seen_can_be_saved_too(tmp_path: Path) -> None:
    """A worker without text contributes the neutral element."""
    request = everything(texts_of().held_out.tokens)[Boundary(1, 2)].request
    save_statistics(tmp_path / "empty", {Boundary(1, 2): BoundaryStatistics(request)})
    assert load_statistics(tmp_path / "empty") == {Boundary(1, 2): BoundaryStatistics(request)}


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Missing, not safetensors, without the header, or with sums gone: one typed error."""
    (tmp_path / "text").write_text("no tensors here")
    save_file({"a": torch.ones(2)}, tmp_path / "weights")
    save_statistics(tmp_path / "whole", everything(texts_of().held_out.tokens))
    tensors = load_file(tmp_path / "whole")
    header = (tmp_path / "whole").read_bytes()
    tensors.pop(next(iter(tensors)))
    from safetensors import safe_open

    with safe_open(tmp_path / "whole", framework="pt") as file:
        save_file(tensors, tmp_path / "robbed", metadata=file.metadata())
    (tmp_path / "cut").write_bytes(header[: len(header) // 2])
    for name in ("missing", "text", "weights", "robbed", "cut"):
        with pytest.raises(DataError, match=name):
            load_statistics(tmp_path / name)
