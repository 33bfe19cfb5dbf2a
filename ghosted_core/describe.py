"""What a model is, without reading its weights."""

from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig

from ghosted_core.checkpoint.load import load_config
from ghosted_core.checkpoint.quiet import quiet_transformers
from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.model.admission import check_configuration
from ghosted_core.model.families import family_of, layers_of


@dataclass(frozen=True)
class ModelDescription:
    """Sizes of a model; of one with a vision tower, width, vocabulary and layers are the language model's.

    Parameters count tied tensors once; `layer_parameters` has one entry a layer.
    """

    architecture: str
    model_type: str
    layer_count: int
    hidden_size: int
    vocabulary_size: int
    max_positions: int | None
    tied_embeddings: bool
    dtype: str
    parameters: int
    layer_parameters: tuple[int, ...]
    commit: str | None
    fingerprint: str


def describe(source: ModelSource, config: PreTrainedConfig | None = None) -> ModelDescription:
    """The description of `source`; the model is built without storage to count its parameters.

    `config` is that of `load_config`, read anew where it is not given (of a GGUF file that takes long).

    Raises:
        UnsupportedModelError: the architecture is not in the families table.
    """
    config = config if config is not None else load_config(source)
    family = family_of(config.model_type)
    check_configuration(config, family)
    text = config.get_text_config()
    with quiet_transformers(), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    # Building on meta ties nothing yet; tying makes the shared tensor count once.
    model.tie_weights()
    counts = tuple(sum(p.numel() for p in layer.parameters()) for layer in layers_of(model, family))
    stored = str(config.dtype).removeprefix("torch.") if config.dtype is not None else "float32"
    return ModelDescription(
        architecture=type(model).__name__,
        model_type=config.model_type,
        layer_count=len(counts),
        hidden_size=text.hidden_size,
        vocabulary_size=text.vocab_size,
        max_positions=getattr(text, "max_position_embeddings", None),
        tied_embeddings=bool(config.tie_word_embeddings),
        dtype="float32" if source.form == "gguf" else stored,
        parameters=sum(p.numel() for p in model.parameters()),
        layer_parameters=counts,
        commit=source.commit,
        fingerprint=source.fingerprint,
    )
