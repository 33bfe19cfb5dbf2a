import json

import pytest

from ghosted_core.recorder import (
    Event,
    LayersChosen,
    Logged,
    MemoryRecorder,
    MetricMeasured,
    Stage,
    StageFinished,
    StageProgressed,
    StageStarted,
    TeeRecorder,
    event_to_json,
    stage,
)


class StoppedMeter:
    def restart(self) -> None:
        self.restarted = True

    def seconds(self) -> float:
        return 1.5

    def peak_memory_bytes(self) -> int:
        return 7


def test_a_stage_tells_its_start_progress_and_end() -> None:
    """Events come in order, the amounts add up, and each recorder hears all of them."""
    heard = MemoryRecorder(), MemoryRecorder()
    with stage(Stage.SCORE, TeeRecorder(heard), StoppedMeter(), total=3) as scope:
        scope.advance(1)
        scope.advance(2)
    assert heard[0].events == [
        StageStarted(Stage.SCORE, 3),
        StageProgressed(Stage.SCORE, 1),
        StageProgressed(Stage.SCORE, 3),
        StageFinished(Stage.SCORE, 1.5, 7),
    ]
    assert heard[1].events == heard[0].events


def test_a_failed_stage_does_not_finish() -> None:
    """An exception passes through, and no end is recorded."""
    memory = MemoryRecorder()
    with pytest.raises(RuntimeError), stage(Stage.LOAD, memory, StoppedMeter()):
        raise RuntimeError
    assert memory.events == [StageStarted(Stage.LOAD)]


@pytest.mark.parametrize(
    "event",
    [
        StageStarted(Stage.LOAD, 3, "steps"),
        MetricMeasured("x", 1.0, {"windows": 2}),
        LayersChosen((1, 2), 4, {"criterion": "sleb"}),
        Logged("hello"),
    ],
)
def test_events_are_plain_json(event: Event) -> None:
    """What goes through a pipe names its kind."""
    document = json.loads(json.dumps(event_to_json(event)))
    assert document["event"] == type(event).__name__
