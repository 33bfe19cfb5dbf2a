"""Training-free layer pruning for decoder language models.

The names below are imported on first use: a process that only reads specs never loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghosted_core.checkpoint.patched import (
        load_patched as load_patched,
        verify_checkpoint as verify_checkpoint,
    )
    from ghosted_core.pipeline import RunOptions as RunOptions, compress as compress
    from ghosted_core.spec import JobSpec as JobSpec

_HOMES = {
    "JobSpec": "ghosted_core.spec",
    "RunOptions": "ghosted_core.pipeline",
    "compress": "ghosted_core.pipeline",
    "load_patched": "ghosted_core.checkpoint.patched",
    "verify_checkpoint": "ghosted_core.checkpoint.patched",
}

__all__ = ["JobSpec", "RunOptions", "compress", "load_patched", "verify_checkpoint"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
