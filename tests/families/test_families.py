"""Every family, cut in every way, with every repair that applies, and reloaded in a fresh process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from ghosted_core.checkpoint.modeling_ghosted import ghosted_classes
from ghosted_core.errors import UnsupportedModelError, UnsupportedRepairError
from ghosted_core.model.admission import check_configuration
from ghosted_core.model.families import SUPPORTED, family_of
from ghosted_core.model.surgery import kept_name, pruned_model
from ghosted_core.pipeline import RunOptions, compress
from ghosted_core.plan import PruningPlan
from ghosted_core.recorder import NullRecorder
from ghosted_core.spec import RECOVERIES
from ghosted_core.testing import TINY_CONFIGS, tiny_config, tiny_model
from tests.jobs import tiny_spec
from tests.tiny import save_tiny_model

LAYERS = 6
CUTS = {"run": [2, 3], "scattered": [1, 4], "edges": [0, 5]}
EVERYWHERE = {"none", "linear_patch_diag", "linear_patch_rotate", "ghosted"}
# Sequential pre-norm blocks with a plain MLP, the only ones whose down projection can take in a repair.
PLAIN = {"llama", "mistral", "qwen2", "qwen3", "phi3", "smollm3", "gpt2", "opt"}
POST_NORM = {"gemma2", "gemma3", "gemma3_text", "olmo2"}
# Where files call the layers otherwise than the model in memory does.
LAYERS_IN_FILES = {"gemma3": "language_model.model.layers"}
REPAIRS = [form.model_fields["name"].default for form in RECOVERIES]


def applies(recovery: str, model_type: str) -> bool:
    """The table of where a repair works, written down here once more."""
    if recovery in EVERYWHERE:
        return True
    return model_type not in POST_NORM if recovery == "prune_and_comp" else model_type in PLAIN


@dataclass(frozen=True)
class Job:
    """One cell of the matrix."""

    cut: str
    dtype: str
    recovery: str

    @property
    def name(self) -> str:
        return f"{self.cut}-{self.dtype}-{self.recovery}"


def jobs() -> list[Job]:
    """Every cut and dtype with no repair and with the operator; the others where cuts can interact."""
    dtypes, basic = ("float32", "bfloat16"), ("none", "ghosted")
    wide = [Job(cut, dtype, recovery) for cut in CUTS for dtype in dtypes for recovery in basic]
    return [*wide, *(Job("scattered", "float32", recovery) for recovery in REPAIRS if recovery not in basic)]


def run(source: Path, text: Path, job: Job, out: Path) -> Path:
    recovery: Any = {"name": job.recovery}
    if job.recovery == "replace_me_cosine":
        recovery["epochs"] = 1
    changes = {"dtype": job.dtype, "recovery": recovery, "evaluation": {"windows": 1, "prompts": []}}
    spec = tiny_spec(source, text, remove=CUTS[job.cut], **changes)
    return compress(spec, RunOptions(out=out, cache=out.parent / "cache"), NullRecorder()).path


def reload(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    finished = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("reload.py")), *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(finished.stdout.splitlines()[-1])
    return found


def names_in(folder: Path) -> set[str]:
    return {name for file in folder.glob("*.safetensors") for name in load_file(file)}


def layer_kinds(config: Any, layer: int) -> list[Any]:
    """What a configuration says of one layer, by what transformers builds from it."""
    text = config.get_text_config()
    lists = [getattr(text, name, None) for name in ("layer_types", "no_rope_layers")]
    return [values[layer] for values in lists if values]


@pytest.mark.parametrize("model_type", sorted(SUPPORTED))
def test_a_family_survives_every_cut_and_repair(model_type: str, text_file: Path, tmp_path: Path) -> None:
    """What applies reloads and answers as it did; what does not is refused before any work."""
    dense = tiny_model(model_type)
    source = save_tiny_model(dense, tmp_path / "source")
    made: dict[Job, Path] = {}
    for job in jobs():
        out = tmp_path / job.name
        if applies(job.recovery, model_type):
            made[job] = run(source, text_file, job, out)
            continue
        with pytest.raises(UnsupportedRepairError):
            run(source, text_file, job, out)
        assert not out.exists()
    found = reload(list(made.values()))
    for job, folder in made.items():
        check(job, folder, found[str(folder)], source, dense)


def check(job: Job, folder: Path, found: dict[str, Any], source: Path, dense: Any) -> None:
    """Tensor names, ties, numbers of layers, kinds of layers, cache and dtype are right."""
    plan = PruningPlan.from_removed(CUTS[job.cut], layer_count=LAYERS)
    family = family_of(dense.config.model_type)
    # In bfloat16 the two ways round differently, and a random model's choices are near ties.
    cache_agrees = found.pop("cache_agrees")
    assert cache_agrees or job.dtype == "bfloat16", job
    assert found == {
        "finite": True,
        "tied": dense.config.tie_word_embeddings,
        "layers": len(plan.kept),
        "dtype": f"torch.{job.dtype}",
        "class": type(dense).__name__,
    }, job
    in_files = replace(family, layers=LAYERS_IN_FILES.get(family.model_type, family.layers))
    expected = {kept_name(name, plan, in_files) for name in names_in(source)} - {None}
    operators = {name for name in names_in(folder) if "ghosted_operator" in name}
    assert names_in(folder) - operators == expected, job
    assert len(operators) == (len(plan.boundaries) if job.recovery in EVERYWHERE - {"none"} else 0), job
    config = json.loads((folder / "config.json").read_text())
    before, after = AutoConfig.from_pretrained(source), read_config(folder, config, type(dense).__name__)
    for new, old in enumerate(plan.kept):
        assert layer_kinds(after, new) == layer_kinds(before, old), job


def read_config(folder: Path, config: dict[str, Any], architecture: str) -> Any:
    if config["model_type"] != "ghosted":
        return AutoConfig.from_pretrained(folder)
    return ghosted_classes(architecture)[0].from_pretrained(folder)


def test_every_supported_family_has_a_tiny_model() -> None:
    """The table and the models of the tests name the same families and classes."""
    assert set(TINY_CONFIGS) == set(SUPPORTED)
    for model_type, family in SUPPORTED.items():
        assert type(tiny_model(model_type)).__name__ == family.architecture


def test_plain_layers_among_experts_stay_plain() -> None:
    """Qwen3-MoE says by a rule on numbers which layers are plain; removing layers keeps each one's kind."""
    dense = tiny_model("qwen3_moe")
    kinds = [type(layer.mlp).__name__ for layer in dense.model.layers]
    assert len(set(kinds)) == 2
    for removed in ([1], [0, 2], [3, 4]):
        pruned = pruned_model(dense, PruningPlan.from_removed(removed, layer_count=LAYERS))
        kept = [kinds[index] for index in range(LAYERS) if index not in removed]
        assert [type(layer.mlp).__name__ for layer in pruned.model.layers] == kept


@pytest.mark.parametrize(
    ("model_type", "settings", "said"),
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before"),
        ("qwen3", {"layer_types": ["linear_attention"] + ["full_attention"] * 5}, "linear_attention"),
        ("llama", {"head_scales": [1.0] * 6}, "head_scales"),
    ],
)
def test_what_layers_cannot_be_removed_from_is_refused(
    model_type: str, settings: dict[str, Any], said: str
) -> None:
    """Settings that hang on layer numbers, layers with a state of their own, unknown per-layer lists."""
    config = tiny_config(model_type, LAYERS)
    for key, value in settings.items():
        setattr(config, key, value)
    with pytest.raises(UnsupportedModelError, match=said):
        check_configuration(config, family_of(model_type))


def test_unknown_families_are_named() -> None:
    """With the list of those that are supported."""
    with pytest.raises(UnsupportedModelError, match="'mamba' is not supported; supported are: cohere2"):
        family_of("mamba")


def test_the_stock_class_of_each_family_refuses_operators(tmp_path: Path) -> None:
    """No family's stock class drops the operators in silence."""
    for model_type, family in SUPPORTED.items():
        config_class, _ = ghosted_classes(family.architecture)
        settings = tiny_model(model_type).config.to_dict()
        config = config_class(**settings, ghosted_operators=[family.layer_path(1)])
        config.architectures = [family.architecture]
        folder = tmp_path / model_type
        folder.mkdir()
        (folder / "config.json").write_text(config.to_json_string())
        with pytest.raises(Exception, match="trust_remote_code"):
            getattr(transformers, family.architecture).from_pretrained(folder)
        with pytest.raises((ValueError, OSError)):
            AutoModelForCausalLM.from_pretrained(folder)
