"""What earlier runs chose, for whoever asks before the next."""

from pathlib import Path
from typing import Any

import pytest

from ghosted_core.catalog import Catalog, HubFile, TextEntry, builtin_catalog
from ghosted_core.choices import Choices, choices_key, form_of
from ghosted_core.criteria import criterion_for
from ghosted_core.data import Windows
from ghosted_core.errors import InvalidSpecError
from ghosted_core.recorder import MemoryRecorder
from ghosted_core.scoring import gather_anew, score_layers
from ghosted_core.spec import JobSpec, LocalModel, ShortGpt
from ghosted_core.stage_cache import FolderStageCache
from ghosted_core.stage_cache.choices import FORMS, noting
from ghosted_core.stage_cache.keeping import Keeping
from ghosted_core.stage_cache.scores import recalled
from ghosted_core.testing import tiny_llama
from tests.repairing import Untimed, texts_of

COMMIT = "0123456789abcdef" * 2 + "01234567"
SHA256 = "ab" * 32
CATALOG = builtin_catalog()


def spec(strategy: Any = "shortgpt", layers: int = 2, **changes: Any) -> JobSpec:
    """A job on a pinned model and a pinned text."""
    model = {"kind": "hub", "id": "owner/tiny", "revision": COMMIT}
    fields = {"model": model, "layers": layers, "strategy": strategy, "dtype": "float32"}
    return JobSpec.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"kind": "hub", "id": "owner/tiny", "revision": "f" * 40}},
        {"dtype": "bfloat16"},
        {"calibration": {"seed": 1}},
        {"calibration": {"sequences": 3}},
        {"calibration": {"dataset": "wikitext2-train"}},
        {"calibration": {"dataset": {"kind": "upload", "id": "0" * 32, "sha256": SHA256}}},
        {"strategy": "taylor"},
        {"strategy": "sleb"},
        {"strategy": "perplexity"},
        {"strategy": {"name": "perplexity", "sequences": 2}},
    ],
)
def test_what_decides_is_in_the_key(changes: dict[str, Any]) -> None:
    """Another model, text or look at it is another question."""
    assert choices_key(spec(**changes), CATALOG) != choices_key(spec(), CATALOG)


@pytest.mark.parametrize(
    "changes",
    [{"layers": 3}, {"strategy": "streamline"}, {"recovery": "none"}, {"evaluation": None}],
)
def test_what_does_not_decide_is_not(changes: dict[str, Any]) -> None:
    """Criteria that look at the same share an answer, whatever else the job does."""
    assert choices_key(spec(**changes), CATALOG) == choices_key(spec(), CATALOG)


def test_what_may_change_its_meaning_has_no_key() -> None:
    """A branch, a folder of the workers, a file of whatever commit, an upload without checksum."""
    moving = Catalog(
        models={"house": LocalModel(path="/srv/house")},
        texts={**CATALOG.texts, "newest": TextEntry(HubFile("o/n", "a.jsonl"), "text")},
    )
    upload = {"kind": "upload", "id": "0" * 32}
    for changes in (
        {"model": "owner/tiny"},
        {"model": "owner/tiny@main"},
        {"model": "house"},
        {"calibration": {"dataset": "newest"}},
        {"calibration": {"dataset": upload}},
        {"strategy": "reverse"},
    ):
        assert choices_key(spec(**changes), moving) is None


UNPROTECTED = [{"name": name, "protect": False} for name in ("taylor", "magnitude")]


@pytest.mark.parametrize("strategy", ["streamline", *UNPROTECTED, "perplexity", "sleb"], ids=str)
def test_a_run_leaves_what_every_criterion_would_choose(strategy: Any, tmp_path: Path) -> None:
    """By each form that looks at the same, for each number of layers: exactly what that run would choose."""
    model, cache, windows = tiny_llama(), FolderStageCache(tmp_path), texts_of(length=16).calibration
    job = spec(strategy)
    keeping = Keeping(cache, {"test": 1}, MemoryRecorder())
    noted = noting(recalled(keeping), job, CATALOG, cache)
    chosen = score_layers(job, model, windows, MemoryRecorder(), Untimed(), noted)
    key = choices_key(job, CATALOG)
    assert key is not None
    path = cache.get(key)
    assert path is not None
    found = Choices.from_bytes(path.read_bytes())
    assert found is not None
    assert found.of(job.strategy, 2, 6) == tuple(sorted(chosen.removed))
    alike = {form_of(form) for form in (*FORMS, job.strategy)}
    assert set(found.removed) <= alike
    for form in (form for form in (*FORMS, job.strategy) if form_of(form) in found.removed):
        for count in range(1, 6):
            _same(found, spec(form, count), model, windows)


def _same(found: Choices, job: JobSpec, model: Any, windows: Windows) -> None:
    known = found.of(job.strategy, job.removal_count(6), 6)
    try:
        criterion_for(job.strategy).candidates(job.removal_count(6), 6)
    except InvalidSpecError:
        assert known is None
        return
    if known is None:
        # Layers that are left out one after another: more of them than the job asked for is not known.
        assert job.strategy.name == "sleb"
        assert job.removal_count(6) > 2
        return
    anew = score_layers(job, model, windows, MemoryRecorder(), Untimed(), gather_anew)
    assert known == tuple(sorted(anew.removed))


@pytest.mark.parametrize(
    "removed", [(1,), (1, 1), (1, 6), (-1, 2), (1, 2, 3)], ids=lambda layers: ",".join(map(str, layers))
)
def test_what_is_no_choice_is_none(removed: tuple[int, ...]) -> None:
    """The process that wrote it reads strangers' files."""
    kept = Choices(6, {form_of(ShortGpt()): {2: removed}})
    again = Choices.from_bytes(kept.to_bytes())
    assert again == kept
    assert again.of(ShortGpt(), 2, 6) is None
    assert Choices(6, {form_of(ShortGpt()): {2: (4, 1)}}).of(ShortGpt(), 2, 7) is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"layer_count": 1}', b"\xff", b'{"layer_count": NaN}'])
def test_what_cannot_be_read_is_nothing(content: bytes) -> None:
    """It is then as if no job had looked."""
    assert Choices.from_bytes(content) is None
