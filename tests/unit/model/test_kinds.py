"""Layers keep their kind when others go, as built by transformers from the written configuration."""

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from ghosted_core.errors import UnsupportedModelError
from ghosted_core.model.admission import check_configuration
from ghosted_core.model.families import family_of
from ghosted_core.model.surgery import pruned_model
from ghosted_core.plan import PruningPlan
from ghosted_core.testing import TINY

SLIDING = {**TINY, "sliding_window": 16}


def built(config: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def kinds(model: PreTrainedModel) -> list[tuple[Any, ...]]:
    """What each layer's attention says of itself."""
    attentions = [layer.self_attn for layer in model.model.layers]
    return [
        tuple(getattr(a, name, None) for name in ("sliding_window", "is_sliding", "use_rope", "layer_type"))
        for a in attentions
    ]


@pytest.mark.parametrize(
    ("config", "removed"),
    [
        # One layer in six sees everything; after this cut they are 2, 5 and 13 of 14.
        (Gemma3TextConfig(**SLIDING, head_dim=8, num_hidden_layers=18), [8, 9, 14, 16]),
        # From the third layer on attention slides: by number before the cut, by list after it.
        (
            Qwen2Config(**SLIDING, num_hidden_layers=6, use_sliding_window=True, max_window_layers=3),
            [0, 1],
        ),
        (Qwen3Config(**SLIDING, num_hidden_layers=6, use_sliding_window=True, max_window_layers=2), [1, 4]),
        # Every fourth layer has no rotary positions.
        (SmolLM3Config(**TINY, num_hidden_layers=9), [2, 3, 6]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_kinds_survive_irregular_cuts(config: Any, removed: list[int], tmp_path: Any) -> None:
    """Also through a file, where they are written out; cached generation still equals uncached."""
    dense = built(config)
    before = kinds(dense)
    assert len(set(before)) == 2
    count = config.num_hidden_layers
    pruned = pruned_model(dense, PruningPlan.from_removed(removed, layer_count=count))
    pruned.save_pretrained(tmp_path)
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    expected = [kind for index, kind in enumerate(before) if index not in removed]
    assert kinds(pruned) == kinds(reloaded) == expected
    tokens = torch.arange(3, 43)[None]
    settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    cached, uncached = (reloaded.generate(tokens, use_cache=use, **settings) for use in (True, False))
    assert torch.equal(cached, uncached)


@pytest.mark.parametrize("name", ["num_nextn_predict_layers", "mtp_num_hidden_layers"])
def test_layers_for_further_tokens_are_refused(name: str) -> None:
    """transformers leaves their weights out; a loader that counts them would miss them."""
    config = Qwen3Config(**TINY, num_hidden_layers=4, **{name: 1})
    with pytest.raises(UnsupportedModelError, match=name):
        check_configuration(config, family_of("qwen3"))
    check_configuration(Qwen3Config(**TINY, num_hidden_layers=4, **{name: 0}), family_of("qwen3"))


@pytest.mark.parametrize("model_type", ["qwen3_next", "qwen3_5", "qwen3_5_text", "deepseek_v2", "mamba"])
def test_hybrids_and_strangers_are_refused(model_type: str) -> None:
    """By name, with what is supported."""
    with pytest.raises(UnsupportedModelError, match="supported are"):
        family_of(model_type)
