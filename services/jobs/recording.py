"""Events of the core's `Recorder` as writes under the fence."""

from ghosted_core.recorder import (
    Event,
    Logged,
    MetricMeasured,
    StageFinished,
    StageProgressed,
    StageStarted,
)
from services.db.sessions import WriteSession
from services.jobs import attempts
from services.jobs.attempts import Fence


def record(session: WriteSession, fence: Fence, event: Event) -> None:
    """The job's rows say what `event` says: its stage, progress, figures or log.

    Raises:
        LeaseLostError: the job has ended or another attempt owns it.
    """
    match event:
        case StageStarted(stage, total, unit):
            attempts.record_stage(session, fence, stage, total=total, unit=unit)
        case StageProgressed(stage, done):
            attempts.record_progress(session, fence, stage, done)
        case StageFinished(stage, seconds, peak):
            payload = {"stage": stage, "seconds": seconds, "peak_memory_bytes": peak}
            attempts.record_event(session, fence, "stage_finished", payload)
        case MetricMeasured(name, value, detail):
            attempts.record_metric(session, fence, name, value, detail)
        case Logged(message, level):
            attempts.record_event(session, fence, "log", {"message": message, "level": level})
