"""What determines the bits that a stage finds, as a digest.

The rule: an entry serves only where computing anew would give the same bits. So the kind of processor
and the number of threads count too: sums in another order round otherwise.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.stage_cache.entry import tensor_bytes

# To be raised whenever a stage computes otherwise, for versions under development share their number.
NUMERICS = 1
PACKAGES = ("ghosted", "torch", "transformers")
PROCESSORS = Path("/proc/cpuinfo")


def circumstances(source: ModelSource, model: PreTrainedModel) -> dict[str, Any]:
    """Everything but the question and the text: model, dtype, kernels, hardware, versions."""
    return {
        "numerics": NUMERICS,
        "fingerprint": source.fingerprint,
        "dtype": str(model.dtype),
        "attention": getattr(model.config, "_attn_implementation", None),
        "hardware": _hardware(model.device),
        "versions": {package: _version(package) for package in PACKAGES},
    }


def key_of(given: Mapping[str, Any], question: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of `question` under the circumstances `given`."""
    text = json.dumps([given, question], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def tokens_digest(tokens: Tensor) -> str:
    """SHA-256, in hexadecimal, of the token windows themselves: wherever they came from."""
    digest = hashlib.sha256(json.dumps([str(tokens.dtype), list(tokens.shape)]).encode())
    digest.update(tensor_bytes(tokens))
    return digest.hexdigest()


def _hardware(device: torch.device) -> dict[str, Any]:
    common = {"machine": platform.machine(), "matmul": torch.get_float32_matmul_precision()}
    if device.type == "cuda":
        return {**common, "device": "cuda", "name": torch.cuda.get_device_name(device)}
    return {
        **common,
        "device": device.type,
        "name": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    """The processor's name; empty where the system does not tell."""
    try:
        lines = PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
