"""How large a model is, from its raw config.json alone. Free of torch and transformers.

Counted by the rules of each architecture instead of by building it, so that an API can answer.
Architectures that are not in the table have no answer here; `describe` has one for all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

STORED_DTYPES = frozenset({"float64", "float32", "bfloat16", "float16"})


@dataclass(frozen=True)
class ConfigSizes:
    """Sizes of a model as its configuration states them; parameters count tied tensors once."""

    model_type: str
    layer_count: int
    hidden_size: int
    vocabulary_size: int
    max_positions: int | None
    dtype: str
    parameters: int
    layer_parameters: tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """The numbers that a decoder layer is made of. `kv_width` is that of the keys, or of the values."""

    hidden: int
    inner: int
    query_width: int
    kv_width: int
    head_width: int

    @property
    def attention(self) -> int:
        """Weights of the four projections."""
        return self.hidden * (2 * self.query_width + 2 * self.kv_width)

    @property
    def query_biases(self) -> int:
        """Biases of queries, keys and values."""
        return self.query_width + 2 * self.kv_width

    def gated(self, inner: int) -> int:
        """Weights of an MLP with a gate."""
        return 3 * self.hidden * inner


def config_sizes(config: Mapping[str, Any]) -> ConfigSizes | None:
    """The sizes that a checked config.json states; None where the table does not know how to count."""
    model_type = str(config.get("model_type"))
    count = LAYERS.get(model_type)
    layer_count, vocabulary = config.get("num_hidden_layers"), config.get("vocab_size")
    shape = _shape(config, model_type)
    if count is None or shape is None or not isinstance(layer_count, int) or not isinstance(vocabulary, int):
        return None
    layers = tuple(count(config, shape, index) for index in range(layer_count))
    tied = bool(config.get("tie_word_embeddings", model_type in TIED_BY_DEFAULT))
    embeddings = vocabulary * shape.hidden * (1 if tied else 2)
    return ConfigSizes(
        model_type=model_type,
        layer_count=layer_count,
        hidden_size=shape.hidden,
        vocabulary_size=vocabulary,
        max_positions=config.get("max_position_embeddings"),
        dtype=_dtype(config),
        # The last term is the final norm.
        parameters=sum(layers) + embeddings + shape.hidden,
        layer_parameters=layers,
    )


def _shape(config: Mapping[str, Any], model_type: str) -> Shape | None:
    hidden, inner, heads = (
        config.get(name) for name in ("hidden_size", "intermediate_size", "num_attention_heads")
    )
    if not isinstance(hidden, int) or not isinstance(inner, int) or not isinstance(heads, int):
        return None
    groups = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or HEAD_WIDTHS.get(model_type) or hidden // heads
    return Shape(hidden, inner, heads * width, groups * width, width)


def _dtype(config: Mapping[str, Any]) -> str:
    stated = config.get("dtype") or config.get("torch_dtype")
    return stated if isinstance(stated, str) and stated in STORED_DTYPES else "float32"


def _norms(shape: Shape, count: int) -> int:
    return count * shape.hidden


def _llama(config: Mapping[str, Any], shape: Shape, _: int) -> int:
    biases = shape.query_biases + shape.hidden if config.get("attention_bias") else 0
    biases += 2 * shape.inner + shape.hidden if config.get("mlp_bias") else 0
    return shape.attention + shape.gated(shape.inner) + _norms(shape, 2) + biases


def _plain(_: Mapping[str, Any], shape: Shape, __: int) -> int:
    return shape.attention + shape.gated(shape.inner) + _norms(shape, 2)


def _qwen2(config: Mapping[str, Any], shape: Shape, index: int) -> int:
    return _plain(config, shape, index) + shape.query_biases


def _qwen3(config: Mapping[str, Any], shape: Shape, index: int) -> int:
    return _llama({**config, "mlp_bias": False}, shape, index) + 2 * shape.head_width


def _gemma2(config: Mapping[str, Any], shape: Shape, index: int) -> int:
    return _llama({**config, "mlp_bias": False}, shape, index) + _norms(shape, 2)


def _gemma3(config: Mapping[str, Any], shape: Shape, index: int) -> int:
    return _gemma2(config, shape, index) + 2 * shape.head_width


def _olmo2(config: Mapping[str, Any], shape: Shape, index: int) -> int:
    return _llama({**config, "mlp_bias": False}, shape, index) + shape.query_width + shape.kv_width


def _cohere2(config: Mapping[str, Any], shape: Shape, index: int) -> int:
    return _llama({**config, "mlp_bias": False}, shape, index) - _norms(shape, 1)


def _mixtral(config: Mapping[str, Any], shape: Shape, _: int) -> int:
    experts = int(config.get("num_local_experts", 8))
    return shape.attention + _norms(shape, 2) + experts * (shape.hidden + shape.gated(shape.inner))


def _qwen3_moe(config: Mapping[str, Any], shape: Shape, index: int) -> int:
    # Older files call the number of experts otherwise than newer ones.
    experts = int(config.get("num_local_experts") or config.get("num_experts", 128))
    inner = int(config.get("moe_intermediate_size", 768))
    dense = index in (config.get("mlp_only_layers") or ())
    dense = dense or not experts or (index + 1) % int(config.get("decoder_sparse_step", 1)) != 0
    if dense:
        return _qwen3(config, shape, index)
    mixture = experts * (shape.hidden + shape.gated(inner))
    return _qwen3(config, shape, index) - shape.gated(shape.inner) + mixture


Count = Callable[[Mapping[str, Any], Shape, int], int]
# Parameters of one layer, by model type.
LAYERS: Mapping[str, Count] = {
    "llama": _llama,
    "mistral": _plain,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _plain,
    "olmo2": _olmo2,
    "smollm3": _llama,
    "cohere2": _cohere2,
}
# What transformers takes where the file says nothing.
TIED_BY_DEFAULT = frozenset({"gemma2", "gemma3_text", "cohere2", "smollm3"})
HEAD_WIDTHS: Mapping[str, int] = {"gemma2": 256, "gemma3_text": 256, "qwen3": 128}
