"""Specs of small jobs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghosted_core.spec import JobSpec


def tiny_spec(model: Path, text: Path, *, remove: Sequence[int] | None = None, **changes: Any) -> JobSpec:
    """A job of seconds on a model folder and a text file: `remove` these layers, or two by score."""
    strategy: Any = {"name": "explicit", "indices": list(remove)} if remove is not None else "streamline"
    fields = {
        "model": {"kind": "local", "path": str(model)},
        "strategy": strategy,
        "layers": None if remove is not None else 2,
        "calibration": {
            "dataset": {"kind": "local", "path": str(text)},
            "sequences": 8,
            "sequence_length": 64,
            "held_out_sequences": 2,
        },
        "evaluation": {"windows": 3, "prompts": ["The fox"], "new_tokens": 4},
    }
    return JobSpec.model_validate(fields | changes)
