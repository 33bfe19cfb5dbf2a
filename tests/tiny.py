"""A small model folder and a small corpus, made on the spot."""

import json
import random
from pathlib import Path

from transformers import PreTrainedModel

from tests.tokenizers_made_here import byte_tokenizer

CHAT_TEMPLATE = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}"
# A combination that transformers refuses to save again, though it loads.
GENERATION_CONFIG = {"do_sample": False, "temperature": 0.9, "eos_token_id": 257, "bos_token_id": 256}
SUBJECTS = ("The fox", "A river", "My neighbour", "Every engineer", "The moon", "This old clock")
VERBS = ("follows", "ignores", "repairs", "remembers", "paints", "outlives")
OBJECTS = ("the long road.", "a quiet town.", "seven letters.", "its own shadow.", "the morning rain.")


def save_tiny_model(model: PreTrainedModel, folder: Path) -> Path:
    """The model as a source folder, complete with what a real repository has."""
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION_CONFIG), encoding="utf-8")
    (folder / "LICENSE").write_text("Do what you like.\n", encoding="utf-8")
    return folder


def write_text(path: Path, *, documents: int = 200, seed: int = 1) -> Path:
    """A corpus of short documents with blank lines between them."""
    chooser = random.Random(seed)  # noqa: S311 - no secret depends on it
    texts = [
        f"{index}. "
        + " ".join(
            f"{chooser.choice(SUBJECTS)} {chooser.choice(VERBS)} {chooser.choice(OBJECTS)}" for _ in range(6)
        )
        for index in range(documents)
    ]
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path
