"""Decoder models with a linear operator at each boundary where layers were removed.

This file travels inside a checkpoint and needs only torch and transformers. It holds no
model of its own: `Ghosted<Name>` is the stock transformers class `<Name>` whose modules
listed in `config.ghosted_operators` apply `x + x M` to their input first (Ghosted Layers,
arXiv 2605.15491). The listed modules are decoder layers, or the final norm when the last
layers of the source model were removed.
"""

import functools
import json
from typing import Any

import torch
import transformers
from torch import nn

PREFIX = "Ghosted"
MODEL_TYPE = "ghosted"
OPERATOR = "ghosted_operator"
# Readers that look only at the top level of config.json for these still find them.
# What a stock configuration class finds where its sizes would be: it refuses text, and shows it.
# What holds nested configurations (a language model's, a vision tower's) gets the same.
_SIZES = ("hidden_size", "num_hidden_layers", "n_embd", "n_layer")
_REFUSAL = "This model has operators that stock classes drop: load it with trust_remote_code=True"
_ALSO_AT_TOP = ("bos_token_id", "eos_token_id", "pad_token_id", "dtype", "transformers_version")


class BoundaryOperator(nn.Module):
    """x -> x + x M for row vectors x of width C; M has shape (C, C)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        # Not a number until loaded: an operator missing from the file must not pass for the identity.
        self.correction = nn.Parameter(torch.full((width, width), float("nan")))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Repair hidden states of any shape (..., C), in the dtype of M."""
        # Not by its name: a module looks for a parameter last, and at small widths one notices.
        correction: torch.Tensor = self._parameters["correction"]  # type: ignore[assignment]
        if hidden_states.numel() == self.width:
            # One token, as in decoding: reshaping it costs more than a fused kernel gains.
            return hidden_states + hidden_states @ correction
        # One fused kernel: x M is accumulated onto x.
        rows = hidden_states.reshape(-1, self.width)
        return torch.addmm(rows, rows, correction).view(hidden_states.shape)

    def lay_out(self) -> None:
        """The same M, in the order in memory that `columns_together` says."""
        self.correction.data = columns_together(self.correction.data)


def columns_together(matrix: torch.Tensor) -> torch.Tensor:
    """The same values of shape (C, C), the elements of a column side by side in memory.

    So a linear layer's weight lies, whose kernels are the fast ones: in bfloat16 on a processor one row
    times M takes half the time.
    """
    return matrix.t().contiguous().t()


class _OperatorFirst:
    """Mixed into the class of a decoder layer or norm: repairs the input, then runs as ever."""

    ghosted_operator: BoundaryOperator

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(self.ghosted_operator(hidden_states), *args, **kwargs)  # type: ignore[misc]


@functools.cache
def _operator_first(stock: type) -> type:
    # The stock name stays: device maps and parallel plans find layers by class name.
    return type(stock.__name__, (_OperatorFirst, stock), {"__module__": __name__})


def attach_operator(module: nn.Module, width: int) -> None:
    """Make `module` apply its own new `ghosted_operator` to its first argument."""
    module.__class__ = _operator_first(type(module))  # type: ignore[arg-type]
    module.ghosted_operator = BoundaryOperator(width)


class GhostedConfigMixin:
    """In memory the stock configuration plus `ghosted_operators`; on disk the stock one lies nested.

    Nested, because a stock class pointed at this file must not find its sizes there: it would
    load every stock tensor, drop the operators with a warning, and answer nonsense.
    """

    ghosted_operators: list[str]

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Read config.json; the stock method would warn that its model_type is another."""
        config_dict, rest = cls.get_config_dict(*args, **kwargs)  # type: ignore[attr-defined]
        return cls.from_dict(config_dict, **rest)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Take the nested form of config.json, or a flat one."""
        flat = {key: value for key, value in config_dict.items() if value != _REFUSAL}
        base = dict(flat.pop("base_config", {}))
        for key in ("model_type", "base_model_type"):
            flat.pop(key, None)
        return super().from_dict({**base, **flat}, **kwargs)  # type: ignore[misc]

    def to_json_string(self, *args: Any, **kwargs: Any) -> str:
        """The nested form, as config.json holds it."""
        base = json.loads(super().to_json_string(*args, **kwargs))  # type: ignore[misc]
        name = base.pop("architectures")[0].removeprefix(PREFIX)
        for key in ("auto_map", "model_type"):
            base.pop(key, None)
        nested = {
            "model_type": MODEL_TYPE,
            "architectures": [PREFIX + name],
            "auto_map": auto_map(name),
            "ghosted_operators": base.pop("ghosted_operators"),
            # Outside the nested part: transformers adopts a nested dictionary whose model_type fits.
            "base_model_type": type(self).model_type,  # type: ignore[attr-defined]
            "base_config": base,
            **dict.fromkeys(_SIZES, _REFUSAL),
            **{key: _REFUSAL for key in base if key.endswith("_config")},
            **{key: base[key] for key in _ALSO_AT_TOP if key in base},
        }
        return json.dumps(nested, indent=2, sort_keys=True) + "\n"


class GhostedModelMixin:
    """Mixed into a stock causal language model class."""

    config: Any

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        width = config.get_text_config().hidden_size
        for path in config.ghosted_operators:
            attach_operator(self.get_submodule(path), width)  # type: ignore[attr-defined]

    @classmethod
    def is_custom_code(cls) -> bool:
        """No: the tensors are those of the stock class, and so are their names in files."""
        return False

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """As the stock class does, but a checkpoint that lacks an operator is refused."""
        loaded = super().from_pretrained(*args, output_loading_info=True, **kwargs)  # type: ignore[misc]
        lost = sorted(name for name in loaded[1]["missing_keys"] if OPERATOR in name)
        if lost:
            # transformers would fill them with whatever memory holds, and only warn.
            raise ValueError(f"The checkpoint lacks operators that its config names: {', '.join(lost)}")
        for module in loaded[0].modules():
            if isinstance(module, BoundaryOperator):
                module.lay_out()
        return loaded if output_loading_info else loaded[0]


def auto_map(architecture: str) -> dict[str, str]:
    """The `auto_map` entry of config.json for the stock class `architecture`."""
    model = f"modeling_ghosted.{PREFIX}{architecture}"
    entries = {"AutoConfig": f"{model}Config", "AutoModelForCausalLM": model}
    if architecture.endswith("ForConditionalGeneration"):
        entries["AutoModelForImageTextToText"] = model
    return entries


@functools.cache
def ghosted_classes(architecture: str) -> tuple[type, type]:
    """(configuration class, model class) for the stock class `architecture` of transformers."""
    stock = getattr(transformers, architecture)
    module = {"__module__": __name__}
    # `_auto_class` makes save_pretrained carry this file along and name it in config.json.
    kind = {**module, "_auto_class": "AutoConfig"}
    config = type(f"{PREFIX}{architecture}Config", (GhostedConfigMixin, stock.config_class), kind)
    body = {**module, "config_class": config, "_auto_class": "AutoModelForCausalLM"}
    # The stock name stays: transformers looks up by it how tensors are named in files.
    model = type(stock.__name__, (GhostedModelMixin, stock), body)
    return config, model


def __getattr__(name: str) -> Any:
    architecture = name.removeprefix(PREFIX).removesuffix("Config")
    if not name.startswith(PREFIX) or not hasattr(transformers, architecture):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    config, model = ghosted_classes(architecture)
    # Kept, so that whoever asks twice gets the same class.
    globals().update({f"{PREFIX}{architecture}Config": config, PREFIX + architecture: model})
    return globals()[name]
