"""Run in a fresh process: load the checkpoints of one family and say what they are.

python reload.py FOLDER...    prints one JSON document: for each folder what was found
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from ghosted_core import verify_checkpoint

TOKENS = torch.arange(3, 43)[None]
GENERATION = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}


def look(folder: Path) -> dict[str, Any]:
    """Verified by its probe; then what a test compares."""
    model = verify_checkpoint(folder).model
    with torch.no_grad():
        logits = model(input_ids=TOKENS).logits
    cached, uncached = (model.generate(TOKENS, use_cache=use, **GENERATION) for use in (True, False))
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    return {
        "finite": bool(torch.isfinite(logits).all()),
        "cache_agrees": bool(torch.equal(cached, uncached)),
        "tied": head.weight is embedding.weight,
        "layers": model.config.get_text_config().num_hidden_layers,
        "dtype": str(model.dtype),
        "class": type(model).__mro__[0].__name__,
    }


if __name__ == "__main__":
    print(json.dumps({folder: look(Path(folder)) for folder in sys.argv[1:]}))  # noqa: T201
