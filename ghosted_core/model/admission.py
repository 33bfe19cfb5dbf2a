"""Which models of a known family layers can be removed from."""

from typing import Any

from ghosted_core.errors import InvalidSpecError, UnsupportedModelError
from ghosted_core.model.families import Family

NO_LAYER_LISTS = frozenset({"architectures", "eos_token_id", "mlp_only_layers"})
# What layers can be, of those that this version knows: the others keep a state of their own.
KNOWN_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
# Counts of layers beside the decoder's, which predict further tokens from what it makes. transformers
# leaves them out, so a saved model would promise weights that it lacks.
FURTHER_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


def check_configuration(config: Any, family: Family) -> None:
    """Return if layers can be removed from a model of this configuration.

    Raises:
        UnsupportedModelError: a setting stands in the way, or a list of one value a layer is not known.
    """
    text = config.get_text_config()
    for setting in family.refused:
        if getattr(text, setting.name, None) is setting.value:
            raise UnsupportedModelError(
                f"Layers cannot be removed with {setting.name}={setting.value}: {setting.reason}."
            )
    for name in FURTHER_LAYERS:
        if getattr(text, name, None) or getattr(config, name, None):
            raise UnsupportedModelError(
                f"The model has layers that predict further tokens ('{name}'), and they would be lost."
            )
    strange = set(getattr(text, "layer_types", None) or ()) - KNOWN_LAYER_TYPES
    if strange:
        raise UnsupportedModelError(f"Layers of the kinds {sorted(strange)} are not supported.")
    known = {*family.per_layer_lists, *NO_LAYER_LISTS}
    for name, value in (*config.to_dict().items(), *text.to_dict().items()):
        if isinstance(value, list) and len(value) == text.num_hidden_layers and name not in known:
            raise UnsupportedModelError(
                f"'{name}' seems to hold one value a layer, and how to cut it is not known."
            )


def check_dtype(dtype: str, config: Any, family: Family) -> None:
    """Return if models of the family can run in `dtype`, or, for 'auto', in what the configuration says.

    Raises:
        InvalidSpecError: their stream would overflow.
    """
    meant = str(config.dtype).removeprefix("torch.") if dtype == "auto" else dtype
    if meant in family.refused_dtypes:
        raise InvalidSpecError(
            f"Model type '{family.model_type}' overflows in {meant}.",
            advice="Set 'dtype' to bfloat16 or float32.",
        )
