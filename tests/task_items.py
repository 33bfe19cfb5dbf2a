"""A few items of benchmark tasks, in the fields of the data sets that the harness loads."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BOOLQ = [
    {
        "passage": f"Note {index} -- A fox has {index} tails.",
        "question": f"has a fox {index} tails",
        "label": index % 2,
    }
    for index in range(8)
]
ARC = [
    {
        "id": str(index),
        "question": f"Which animal has {index} letters?",
        "choices": {
            "text": ["a fox", "one old hen", "the grey goose", "nobody"],
            "label": ["A", "B", "C", "D"],
        },
        "answerKey": "ABCD"[index % 4],
    }
    for index in range(6)
]


def write_items(folder: Path, name: str, items: Iterable[Mapping[str, Any]]) -> Path:
    """The folder, with the items in the file NAME.jsonl."""
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(item) + "\n" for item in items)
    (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder
