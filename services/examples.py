"""Request bodies to begin with; a test submits each of them."""

from collections.abc import Mapping
from typing import Any

SUBMISSIONS: Mapping[str, Any] = {
    "smallest": {
        "summary": "Remove five layers of a model of the catalog, repair the cut",
        "value": {"model": "smollm2-135m-instruct", "layers": 5},
    },
    "hub": {
        "summary": "A quarter of a Hub model's layers, pinned to a revision",
        "value": {
            "model": {"kind": "hub", "id": "Qwen/Qwen3-0.6B", "revision": "main"},
            "layers": "25%",
            "strategy": "shortgpt",
            "recovery": {"name": "ghosted", "ridge": "auto"},
            "calibration": {"dataset": "wikitext2-train", "sequences": 64, "sequence_length": 1024},
            "labels": {"team": "search"},
        },
    },
    "named_layers": {
        "summary": "Exactly these layers, without repair or measurements",
        "value": {
            "model": "smollm2-135m-instruct",
            "strategy": {"name": "explicit", "indices": "20-24"},
            "recovery": "none",
            "evaluation": None,
        },
    },
}
EDITS: Mapping[str, Any] = {
    "same": {"summary": "The same again", "value": {}},
    "fewer_layers": {
        "summary": "Fewer layers, more text",
        "value": {"layers": 3, "calibration": {"sequences": 64}},
    },
}
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "submit_job": SUBMISSIONS,
    "validate_job": SUBMISSIONS,
    "retry_job": EDITS,
}
