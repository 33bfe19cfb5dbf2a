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
# Two items of each task that the documentation names, and of one whose standard error is bootstrapped,
# by the name of their file.
OF_EACH_TASK: dict[str, list[dict[str, Any]]] = {
    "arc_easy_test": ARC[:2],
    "arc_challenge_test": ARC[2:4],
    "boolq_validation": BOOLQ[:2],
    "hellaswag_validation": [
        {
            "activity_label": "Feeding hens",
            "ctx_a": f"A fox holds {index} bags.",
            "ctx_b": "the hen",
            "endings": ["eats.", "runs away.", "sleeps [title] at last.", "sings."],
            "label": str(index),
        }
        for index in range(2)
    ],
    "winogrande_xl_validation": [
        {
            "sentence": f"The fox fed {index} hens because the _ were hungry.",
            "option1": "hens",
            "option2": "foxes",
            "answer": str(index + 1),
        }
        for index in range(2)
    ],
    "openbookqa_test": [
        {"question_stem": item["question"], "choices": item["choices"], "answerKey": item["answerKey"]}
        for item in ARC[:2]
    ],
    "rte_validation": [
        {"sentence1": f"The fox has {index} hens.", "sentence2": "The fox has hens.", "label": index}
        for index in range(2)
    ],
    "copa_validation": [
        {
            "premise": "The hen ran away.",
            "question": question,
            "choice1": "It saw a fox.",
            "choice2": "It fell asleep.",
            "label": 0,
        }
        for question in ("cause", "effect")
    ],
    "race_high_test": [
        {
            "article": f"Once {index} hens met a fox.",
            # A list of problems, written as Python does.
            "problems": str(
                [
                    {
                        "question": "The fox is  _  .",
                        "options": ["red", "a hen", "old", "green"],
                        "answer": "A",
                    },
                    {"question": "Who met it?", "options": ["hens", "foxes", "owls", "cows"], "answer": "D"},
                ]
            ),
        }
        for index in range(2)
    ],
    "lambada_openai_test": [{"text": "The hen saw the old fox"}, {"text": "The fox saw the hens"}],
}


def write_items(folder: Path, name: str, items: Iterable[Mapping[str, Any]]) -> Path:
    """The folder, with the items in the file NAME.jsonl."""
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(item) + "\n" for item in items)
    (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder
