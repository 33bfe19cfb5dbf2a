from dataclasses import replace

import pytest

from ghosted_core.spec import JobSpec
from services.workers.needs import CATALOG_SIZES, UNKNOWN, catalog_needs, needs_of

GIB = 1 << 30
# A model of 8 billion parameters in bfloat16.
LARGE = replace(
    CATALOG_SIZES["smollm2-135m-instruct"],
    hidden_size=4096,
    vocabulary_size=128_256,
    dtype="bfloat16",
    parameters=8_030_261_248,
    layer_parameters=(218_112_000,) * 32,
)


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"model": "smollm2-135m-instruct", "layers": 2, **fields})


def test_the_catalogs_model_adds_up() -> None:
    """Layers, embeddings (tied) and the last norm are all parameters of the model."""
    sizes = CATALOG_SIZES["smollm2-135m-instruct"]
    beside = sizes.vocabulary_size * sizes.hidden_size + sizes.hidden_size
    assert sum(sizes.layer_parameters) + beside == sizes.parameters


def test_weights_are_the_least() -> None:
    """A job needs memory for the weights and more, and disk for two checkpoints."""
    for sizes, item in ((CATALOG_SIZES["smollm2-135m-instruct"], 4), (LARGE, 2)):
        needs = needs_of(spec(), sizes)
        assert needs.memory_bytes is not None
        assert needs.disk_bytes is not None
        kept = sizes.parameters - 2 * sizes.layer_parameters[0]
        assert needs.memory_bytes > sizes.parameters * item
        assert needs.disk_bytes > 2 * kept * item


def test_needs_follow_the_spec() -> None:
    """A wider dtype needs more memory; more layers removed need less disk."""
    wide, usual, smaller = (
        needs_of(spec(**fields), LARGE) for fields in ({"dtype": "float32"}, {}, {"layers": 8})
    )
    assert (wide.memory_bytes or 0) > (usual.memory_bytes or 0) + 15 * GIB
    assert (smaller.disk_bytes or 0) < (usual.disk_bytes or 0)


@pytest.mark.parametrize(
    "fields", [{"layers": 32}, {"layers": 99}, {"strategy": {"name": "explicit", "indices": [40]}}]
)
def test_what_does_not_fit_is_not_known(fields: dict[str, object]) -> None:
    """A spec that the model refuses has no needs here: the job will say what is wrong."""
    strategy = fields.get("strategy")
    asked = spec(**fields) if strategy is None else JobSpec.model_validate({"model": "a/b", **fields})
    assert needs_of(asked, LARGE) == UNKNOWN


def test_every_strategy_has_an_estimate() -> None:
    """Whatever the criterion and however many layers go, there is a plan to estimate from."""
    for name in ("streamline", "shortgpt", "taylor", "sleb", "reverse", "magnitude", "perplexity"):
        for layers in (1, 7, 20, "60%"):
            assert needs_of(spec(strategy={"name": name}, layers=layers), LARGE) != UNKNOWN


def test_other_models_are_not_known() -> None:
    """Of a model that is not in the catalog nothing is known without looking at it."""
    assert catalog_needs(spec()) != UNKNOWN
    assert catalog_needs(spec(model="owner/name")) == UNKNOWN
