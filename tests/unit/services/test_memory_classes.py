import itertools

import pytest

from services.config import Settings
from services.workers.classes import GIB, QUEUE, parse_classes

CLASSES = parse_classes("small:16,medium:48,large")


@pytest.mark.parametrize(
    ("needs", "queue"),
    [
        (None, QUEUE),
        (0, QUEUE),
        (16 * GIB, QUEUE),
        (16 * GIB + 1, f"{QUEUE}.medium"),
        (48 * GIB, f"{QUEUE}.medium"),
        (400 * GIB, f"{QUEUE}.large"),
    ],
)
def test_a_job_goes_to_its_class(needs: int | None, queue: str) -> None:
    """The smallest class whose limit holds it; what is not known goes where all workers look."""
    assert CLASSES.queue_for(needs) == queue


def test_a_worker_listens_wherever_a_job_may_fit() -> None:
    """A worker with as much memory as a job needs listens to its queue, and to the largest first."""
    amounts = [0, GIB, 16 * GIB, 17 * GIB, 48 * GIB, 60 * GIB, 500 * GIB]
    for has, needs in itertools.product(amounts, amounts):
        if needs <= has:
            assert CLASSES.queue_for(needs) in CLASSES.queues_of(has)
    assert CLASSES.queues_of(500 * GIB) == (f"{QUEUE}.large", f"{QUEUE}.medium", QUEUE)
    assert CLASSES.queues_of(None) == CLASSES.queues_of(500 * GIB)
    assert CLASSES.queues_of(GIB) == (QUEUE,)


def test_the_class_has_a_name() -> None:
    """A worker's class is the largest that it listens to."""
    assert [CLASSES.name_of(size) for size in (GIB, 24 * GIB, 80 * GIB, None)] == [
        "small",
        "medium",
        "large",
        "large",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "small", "a:1,b:2", "a:2,b:1,c", "a:1,a:2,b", "a:x,b", "A:1,b", "a:1,,b", "a,b:1", "a:1,a", "a,b"],
)
def test_other_texts_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes without order, name or limit stop a process at its start; one class is fine."""
    required = {"database_url": "postgresql://h/x", "redis_url": "redis://h/0", "s3_access_key": "a"}
    values = {**required, "s3_secret_key": "b", "memory_classes": text}
    if text == "small":
        assert Settings.model_validate(values).memory_classes == text
    else:
        with pytest.raises(ValueError, match="memory_classes"):
            Settings.model_validate(values)
