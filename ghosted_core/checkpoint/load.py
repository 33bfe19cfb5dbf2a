"""A checked source becomes a stock transformers model and tokenizer."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ghosted_core.checkpoint.quiet import quiet_transformers
from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.errors import CorruptModelError, NonFiniteError, UnsupportedModelError
from ghosted_core.spec import HubModel

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
COMPANION = re.compile(
    r"^(?:tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|vocab\.json"
    r"|vocab\.txt|merges\.txt|tekken\.json|[\w.-]+\.model|[\w.-]+\.tiktoken"
    r"|(?:pre|video_pre)?processor_config\.json|chat_template\.(?:jinja|json)|generation_config\.json|(?:LICENSE|LICENCE|NOTICE)[\w.-]*)$",
    re.ASCII,
)
FURTHER = re.compile(r"(?:^|\.)mtp\.")
CHAT_TEMPLATES = "additional_chat_templates"


def load_config(source: ModelSource) -> "PreTrainedConfig":
    """The configuration of `source`, without reading a weight.

    Raises:
        CorruptModelError: transformers cannot read it.
    """
    from transformers import AutoConfig

    with quiet_transformers(), _translated(source):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            **_location(source), trust_remote_code=False, local_files_only=True
        )
    return config


def load_model(
    source: ModelSource, *, dtype: Literal["auto", "float32", "bfloat16", "float16"], device: str
) -> "PreTrainedModel":
    """The model of `source` on `device`, in eval mode, without gradients, every weight loaded and finite.

    `auto` is the dtype that the config states, and float32 for GGUF files. The class is the stock
    one that transformers has for the config's model type; it can be saved.

    Raises:
        UnsupportedModelError: transformers has another class for this model type than it names.
        CorruptModelError: weights missing, layers more than the config counts, or files that
            transformers cannot read.
        NonFiniteError: a weight is infinite or not a number in this dtype.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if source.form == "directory":
        _check_class(source.config)
    with quiet_transformers(), _translated(source):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            **_location(source),
            dtype=_dtype(source, dtype),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    model: PreTrainedModel = loaded[0]
    _check_report(loaded[1])
    _check_layer_count(model, loaded[1])
    _refuse_further_layers(loaded[1])
    _settle_ties(model)
    if source.form == "gguf":
        _forget_origin(model)
    _check_finite(model)
    # Otherwise a path of this machine would travel inside the checkpoint's config.
    model.config.name_or_path = _public_name(source)
    model.requires_grad_(requires_grad=False)
    model.eval()  # type: ignore[no-untyped-call]
    torch.nn.Module.to(model, device)
    return model


def load_tokenizer(source: ModelSource) -> "PreTrainedTokenizerBase":
    """The source's tokenizer, with its chat template and special tokens.

    Raises:
        CorruptModelError: there is none that transformers can read.
    """
    from transformers import AutoTokenizer

    with quiet_transformers(), _translated(source, "the tokenizer of "):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            **_location(source), trust_remote_code=False, local_files_only=True
        )
    return tokenizer


def copy_source_files(source: ModelSource, destination: Path) -> tuple[str, ...]:
    """What goes with the weights of the source lies in `destination`.

    That is tokenizer, image processor, chat templates, generation settings and licence. Those of a
    folder are copied byte for byte. A GGUF file has none, so they are written from what it says.
    Returns the names written, in order.

    Raises:
        CorruptModelError: a GGUF file whose tokenizer or settings cannot be read.
    """
    if source.form == "gguf":
        return _write_gguf_companions(source, destination)
    names = [path.name for path in source.path.iterdir() if COMPANION.fullmatch(path.name) and path.is_file()]
    templates = source.path / CHAT_TEMPLATES
    if templates.is_dir():
        names += [f"{CHAT_TEMPLATES}/{path.name}" for path in templates.glob("*.jinja")]
    for name in names:
        target = destination / name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source.path / name, target)
    return tuple(sorted(names))


def _write_gguf_companions(source: ModelSource, destination: Path) -> tuple[str, ...]:
    from transformers import AutoConfig, GenerationConfig

    written = load_tokenizer(source).save_pretrained(destination)
    _drop_call_arguments(destination / TOKENIZER_CONFIG)
    with quiet_transformers(), _translated(source):
        config = AutoConfig.from_pretrained(**_location(source), local_files_only=True)
        settings = GenerationConfig.from_model_config(config)
        # As a file it stands for itself; the mark would let transformers rewrite it.
        settings._from_model_config = False  # noqa: SLF001
    # Not `save_pretrained`: it judges the settings and may refuse, when all the work is done.
    (destination / GENERATION_CONFIG).write_text(settings.to_json_string(), encoding="utf-8")
    names = [Path(path).relative_to(destination).as_posix() for path in written if Path(path).is_file()]
    return tuple(sorted({*names, GENERATION_CONFIG}))


def _drop_call_arguments(path: Path) -> None:
    # transformers saves how the tokenizer was loaded here; that is no property of the tokenizer.
    settings = json.loads(path.read_text(encoding="utf-8"))
    for name in ("is_local", "local_files_only"):
        settings.pop(name, None)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _location(source: ModelSource) -> dict[str, str]:
    if source.form == "gguf":
        return {
            "pretrained_model_name_or_path": str(source.path.parent),
            "gguf_file": source.path.name,
        }
    return {"pretrained_model_name_or_path": str(source.path)}


def _dtype(source: ModelSource, dtype: str) -> Any:
    import torch

    if dtype == "auto":
        return torch.float32 if source.form == "gguf" else "auto"
    return getattr(torch, dtype)


def _public_name(source: ModelSource) -> str:
    return source.reference.id if isinstance(source.reference, HubModel) else source.path.name


def _check_class(config: Mapping[str, Any]) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    stock = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config["model_type"])
    if config["architectures"] != [stock]:
        raise UnsupportedModelError(
            f"config.json names {config['architectures'][0]} for model type {config['model_type']}, "
            f"whose class in transformers is {stock}."
        )


def _check_report(report: Mapping[str, Any]) -> None:
    # Mismatched shapes would be filled with random values, like missing tensors.
    for fault in ("missing_keys", "mismatched_keys", "error_msgs"):
        if report.get(fault):
            count = len(report[fault])
            first = str(min(report[fault], key=str))[:200]
            raise CorruptModelError(f"Loading left {count} {fault.replace('_', ' ')}, the first is {first}.")


def _check_layer_count(model: "PreTrainedModel", report: Mapping[str, Any]) -> None:
    # Other names that transformers does not expect stay without effect: old repositories hold buffers.
    from ghosted_core.model.families import SUPPORTED

    family = SUPPORTED.get(model.config.model_type)
    if family is None:
        return
    # Some repositories name their tensors without the outer modules: h.3 for transformer.h.3.
    outer, _, layers = family.layers.rpartition(".")
    prefix = "".join(rf"(?:{part}\.)?" for part in outer.split("."))
    name = re.compile(rf"{prefix}{layers}\.(\d{{1,9}})\..+", re.ASCII)
    count = model.config.get_text_config().num_hidden_layers
    matches = (name.fullmatch(str(key)) for key in report.get("unexpected_keys") or ())
    beyond = sorted(match[0] for match in matches if match and int(match[1]) >= count)
    if beyond:
        raise CorruptModelError(
            f"The weights go on after the {count} layers that config.json counts: {beyond[0][:200]} "
            f"and {len(beyond) - 1} more.",
            advice="config.json and the weights are of different models; fetch both again.",
        )


def _refuse_further_layers(report: Mapping[str, Any]) -> None:
    further = sorted(str(key) for key in report.get("unexpected_keys") or () if FURTHER.search(str(key)))
    if further:
        raise UnsupportedModelError(
            f"The weights hold layers that predict further tokens, and they would be lost: "
            f"{further[0][:200]} and {len(further) - 1} more."
        )


def _settle_ties(model: "PreTrainedModel") -> None:
    # Where the file holds a head of its own, the values decide. A configuration that calls it tied
    # would let another loader throw it away.
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    embeddings = model.get_input_embeddings()
    if model.config.tie_word_embeddings and head is not None and head.weight is not embeddings.weight:
        for config in (model.config, model.config.get_text_config()):
            config.tie_word_embeddings = False


def _check_finite(model: "PreTrainedModel") -> None:
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise NonFiniteError(f"{name} is not finite in {parameter.dtype}.")


def _forget_origin(model: "PreTrainedModel") -> None:
    # The weights were expanded while loading, but the model still says it is quantised and would
    # refuse to be saved. The other field is the file's title under a name that means a path.
    for name in ("hf_quantizer", "is_quantized", "quantization_method"):
        if name in vars(model):
            delattr(model, name)
    for name in ("quantization_config", "_model_name_or_path"):
        if name in vars(model.config):
            delattr(model.config, name)


@contextmanager
def _translated(source: ModelSource, part: str = "") -> Iterator[None]:
    from ghosted_core.device import is_out_of_memory

    try:
        yield
    # The tokenizers library raises plain Exception, so nothing narrower would do.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise CorruptModelError(
            f"transformers cannot read {part}{_public_name(source)} ({type(error).__name__})."
        ) from error
