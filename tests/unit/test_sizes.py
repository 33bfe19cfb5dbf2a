import json
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from ghosted_core.model.families import SUPPORTED, family_of, layers_of
from ghosted_core.sizes import LAYERS, config_sizes
from ghosted_core.testing import TINY_CONFIGS, tiny_model

BIASED = {"attention_bias": True, "mlp_bias": True}


def counted(config: Any) -> tuple[int, tuple[int, ...]]:
    """The parameters of the model that transformers builds, tied ones once, and those of each layer."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    layers = layers_of(model, family_of(config.model_type))
    per_layer = tuple(sum(p.numel() for p in layer.parameters()) for layer in layers)
    return sum(p.numel() for p in model.parameters()), per_layer


@pytest.mark.parametrize("model_type", sorted(LAYERS))
@pytest.mark.parametrize("more", [{}, {"tie_word_embeddings": True}, BIASED], ids=["plain", "tied", "biased"])
def test_parameters_are_those_of_the_model(model_type: str, more: dict[str, Any]) -> None:
    """Counting by rule gives what building the model gives, layer for layer."""
    kind, settings = TINY_CONFIGS[model_type]
    config = getattr(transformers, kind)(**{**settings, "num_hidden_layers": 6, **more})
    raw = json.loads(config.to_json_string(use_diff=False))
    found = config_sizes({**raw, "model_type": model_type})
    assert found is not None
    assert (found.parameters, found.layer_parameters) == counted(config)


@pytest.mark.parametrize("model_type", sorted(LAYERS))
def test_a_short_file_means_the_defaults(model_type: str) -> None:
    """What config.json leaves out is what transformers takes in its place."""
    kind, settings = TINY_CONFIGS[model_type]
    config = getattr(transformers, kind)(**{**settings, "num_hidden_layers": 6})
    found = config_sizes({**settings, "num_hidden_layers": 6, "model_type": model_type})
    assert found is not None
    assert found.parameters == counted(config)[0]


def test_only_supported_architectures_are_counted() -> None:
    """The table holds no model type that could not be pruned."""
    assert set(LAYERS) <= set(SUPPORTED)


@pytest.mark.parametrize(
    "config",
    [{}, {"model_type": "other"}, {"model_type": "llama", "hidden_size": "64"}, {"model_type": "gpt2"}],
)
def test_the_rest_is_not_guessed(config: dict[str, Any]) -> None:
    """Without a rule or without numbers there is no answer."""
    assert config_sizes(config) is None


def test_the_dtype_is_the_stated_one() -> None:
    """Either spelling of the file; float32 where it says nothing."""
    raw = json.loads(tiny_model("llama").config.to_json_string(use_diff=False))
    bare = {key: value for key, value in raw.items() if key not in {"dtype", "torch_dtype"}}
    for more, expected in (
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({}, "float32"),
    ):
        found = config_sizes({**bare, **more})
        assert found is not None
        assert found.dtype == expected
