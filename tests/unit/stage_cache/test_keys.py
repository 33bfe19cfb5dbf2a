from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.data import Windows
from ghosted_core.plan import Boundary, PruningPlan
from ghosted_core.recovery import RecoverySolver, solver_for
from ghosted_core.spec import LocalModel
from ghosted_core.stage_cache import keys
from ghosted_core.stage_cache.keys import circumstances, key_of, tokens_digest
from ghosted_core.stage_cache.repairs import question_of
from ghosted_core.stage_cache.statistics import Asked
from ghosted_core.testing import tiny_llama
from tests.repairing import recovery_of, texts_of

SOURCE = ModelSource(LocalModel(path="/m"), Path("/m"), "directory", None, "f" * 64)
TOKENS = torch.arange(3, 43)[None]


def test_tokens_are_known_by_their_values() -> None:
    """Another token, order, shape or number of windows is another text; a view of the same is not."""
    same = tokens_digest(torch.arange(0, 43)[None, 3:])
    assert tokens_digest(TOKENS) == same
    others = (TOKENS + 1, TOKENS.flip(1), TOKENS.view(2, 20), TOKENS[:, :-1], TOKENS[:0])
    assert len({same, *(tokens_digest(other) for other in others)}) == 6


def test_model_dtype_and_machine_determine_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each changes the key: model files, dtype, attention, threads, processor, versions, our numerics."""
    model = tiny_llama()
    found = [circumstances(SOURCE, model)]
    found.append(circumstances(replace(SOURCE, fingerprint="e" * 64), model))
    found.append(circumstances(SOURCE, tiny_llama().to(torch.bfloat16)))
    other = tiny_llama()
    other.config._attn_implementation = "eager"
    found.append(circumstances(SOURCE, other))
    for name, change in {
        "_processor": lambda: "another",
        "_version": lambda package: package,
        "NUMERICS": 99,
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(keys, name, change)
            found.append(circumstances(SOURCE, model))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 77)
        found.append(circumstances(SOURCE, model))
    assert len({key_of(given, {}) for given in found}) == len(found)


def test_where_the_model_lies_does_not_matter() -> None:
    """The same files under another name, reference or commit are the same model."""
    elsewhere = ModelSource(LocalModel(path="/x"), Path("/x"), "directory", "c0ffee", "f" * 64)
    assert circumstances(SOURCE, tiny_llama()) == circumstances(elsewhere, tiny_llama())


def asked(name: str, windows: Windows | None = None, **settings: Any) -> Asked:
    solver = solver_for(recovery_of(name, **settings))
    assert isinstance(solver, RecoverySolver)
    return Asked.by(solver, windows or texts_of().calibration)


def statistics_key(asked: Asked, start: int = 1, stop: int = 3) -> str:
    return key_of({}, asked.question(Boundary(start, stop)))


def test_settings_of_the_solving_do_not_change_the_sums() -> None:
    """Ridge and solver are applied to the sums afterwards."""
    same = {
        statistics_key(asked("ghosted", **settings))
        for settings in ({}, {"ridge": 0.5}, {"ridge": "auto"}, {"solver": "truncated"})
    }
    assert len(same) == 1


def test_what_is_summed_changes_the_key() -> None:
    """Boundary, text, weighting, precision and the sums themselves."""
    found = [
        statistics_key(asked("ghosted")),
        statistics_key(asked("ghosted"), 1, 4),
        statistics_key(asked("ghosted"), 2, 3),
        statistics_key(asked("ghosted", texts_of(seed=1).calibration)),
        statistics_key(asked("ghosted", texts_of().held_out)),
        statistics_key(asked("ghosted", weighting="skip_first")),
        statistics_key(asked("ghosted", products="float32")),
        statistics_key(asked("replace_me")),
        statistics_key(asked("linear_patch_diag")),
    ]
    assert len(set(found)) == len(found)


def test_everything_of_a_trained_repair_changes_its_key() -> None:
    """There, the settings decide the training."""
    one, two = (PruningPlan.from_removed(removed, layer_count=6) for removed in ([1], [1, 3]))
    texts = texts_of()
    found = [
        key_of({}, question_of(recovery, plan, text))
        for recovery, plan, text in (
            (recovery_of("replace_me_cosine"), one, texts),
            (recovery_of("replace_me_cosine", epochs=2), one, texts),
            (recovery_of("replace_me_cosine"), two, texts),
            (recovery_of("replace_me_cosine"), one, texts_of(seed=1)),
            (recovery_of("replace_me_cosine"), one, texts_of(held_out=1)),
        )
    ]
    assert len(set(found)) == len(found)


def test_keys_are_plain_hexadecimal() -> None:
    """Fit for a file name and an object's key."""
    assert len(bytes.fromhex(key_of({"a": [1, "ü"]}, {"b": None}))) == 32
