from pathlib import Path

import pytest

from ghosted_core.batching import batch_size
from ghosted_core.errors import TaskDataError
from ghosted_core.evaluate.task_data import local_files


def folder_with(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize(
    ("file", "task", "dataset", "configuration"),
    [
        ("boolq_validation.jsonl", "boolq", "aps/super_glue", "boolq"),
        ("winogrande_xl_validation.jsonl", "winogrande", "allenai/winogrande", "winogrande_xl"),
        ("race_high_test.jsonl.gz", "race", "EleutherAI/race", "high"),
        ("ARC-Easy_test.parquet", "my_arc", "allenai/ai2_arc", "ARC-Easy"),
        ("super_glue_copa_dev.jsonl", "choices", "aps/super_glue", "copa"),
        ("hellaswag_validation.jsonl", "my_swag", "Rowan/hellaswag", None),
    ],
)
def test_a_task_finds_its_file(
    file: str, task: str, dataset: str, configuration: str, tmp_path: Path
) -> None:
    """By its own name, or by those that the harness gives to its data."""
    folder_with(tmp_path, file, "other_test.jsonl", "boolq.txt", "boolqq_test.jsonl")
    found = local_files(tmp_path, task, dataset, configuration)
    assert [[path.name for path in paths] for _, paths in found.splits] == [[file]]
    assert found.kind == ("parquet" if file.endswith("parquet") else "json")
    assert list(found.fingerprints) == [file]


def test_a_file_of_the_whole_data_set_serves_none_of_its_configurations(tmp_path: Path) -> None:
    """The easy and the challenging questions would be scored on the same items."""
    folder_with(tmp_path, "ai2_arc_test.jsonl")
    with pytest.raises(TaskDataError, match="arc_easy"):
        local_files(tmp_path, "arc_easy", "allenai/ai2_arc", "ARC-Easy")


def test_parts_are_in_order_and_splits_apart(tmp_path: Path) -> None:
    """By number, not by name."""
    names = [f"hellaswag_validation.part{number}.jsonl" for number in (10, 2, 1)]
    folder_with(tmp_path, *names, "hellaswag_train.jsonl")
    splits = dict(local_files(tmp_path, "hellaswag", "Rowan/hellaswag", None).splits)
    assert [path.name for path in splits["validation"]] == names[::-1]
    assert [path.name for path in splits["train"]] == ["hellaswag_train.jsonl"]


@pytest.mark.parametrize(
    "names",
    [
        ("boolq_validation.jsonl", "boolq_validation.jsonl.gz"),
        ("boolq_validation.jsonl", "boolq_validation.part0.jsonl"),
        ("boolq_validation.part01.jsonl", "boolq_validation.part1.jsonl"),
    ],
)
def test_files_that_count_items_twice_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    """By name, without where they lie; those of another split do not matter."""
    folder_with(tmp_path, *names, "boolq_train.jsonl")
    with pytest.raises(TaskDataError, match=f"{names[0]}, {names[1]} in") as refused:
        local_files(tmp_path, "boolq", "aps/super_glue", "boolq")
    assert str(tmp_path) not in str(refused.value)


def test_missing_and_mixed_files_are_refused(tmp_path: Path) -> None:
    """With a name that would be found."""
    with pytest.raises(TaskDataError) as missing:
        local_files(tmp_path / "nowhere", "boolq", "aps/super_glue", "boolq")
    assert "boolq_validation.jsonl" in missing.value.hint
    folder_with(tmp_path, "boolq_test.jsonl", "boolq_train.parquet")
    with pytest.raises(TaskDataError, match="several kinds"):
        local_files(tmp_path, "boolq", "aps/super_glue", "boolq")


@pytest.mark.parametrize(
    ("length", "vocabulary"), [(2048, 152_000), (512, 49_152), (16, 320), (8192, 256_000)]
)
def test_a_batch_keeps_its_logits_within_the_bound(length: int, vocabulary: int) -> None:
    """One more sequence would not, but for the largest size; a single one runs in any case."""
    bound = 512 << 20
    size = batch_size(length, vocabulary, bound)
    assert 1 <= size <= 64
    assert size == 1 or size * length * vocabulary * 4 <= bound
    assert size == 64 or (size + 1) * length * vocabulary * 4 > bound
