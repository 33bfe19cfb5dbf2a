"""Why a queued job waits that no worker can take."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from services.db.models import Job
from services.db.sessions import ReadSession
from services.jobs.states import JobState
from services.workers.classes import GIB
from services.workers.repository import Seen, list_workers

NO_WORKER = "no live worker"


def waiting_reasons(session: ReadSession, jobs: Sequence[Job], *, lease_seconds: float) -> Mapping[UUID, str]:
    """For each queued job of `jobs` that no live worker can take, why."""
    queued = [job for job in jobs if job.state == JobState.QUEUED]
    if not queued:
        return {}
    live = [seen for seen in list_workers(session, lease_seconds=lease_seconds) if seen.live]
    reasons = {job.id: _reason(job, live) for job in queued}
    return {job_id: reason for job_id, reason in reasons.items() if reason is not None}


def _reason(job: Job, live: Sequence[Seen]) -> str | None:
    if not live:
        return NO_WORKER
    memory, disk = job.needs_memory_bytes or 0, job.needs_disk_bytes or 0
    totals = [_known(seen.worker.memory_bytes) for seen in live]
    if max(totals) < memory:
        return f"needs {_gib(memory)} of memory, the largest live worker has {_gib(max(totals))}"
    disks = [_known(seen.worker.free_disk_bytes) for seen in live]
    if max(disks) < disk:
        return f"needs {_gib(disk)} of disk, of which at most {_gib(max(disks))} are free on a live worker"
    free = [_free_memory(seen) for seen in live]
    if max(free) < memory:
        return f"needs {_gib(memory)} of memory, of which at most {_gib(max(free))} are free on a live worker"
    if not any(has >= memory and room >= disk for has, room in zip(free, disks, strict=True)):
        return f"needs {_gib(memory)} of memory and {_gib(disk)} of disk, which no live worker has both"
    return None


def _free_memory(seen: Seen) -> float:
    """What the worker can offer its next job: a job that runs now will give back what it takes."""
    return _known(seen.worker.memory_bytes if seen.job is not None else seen.worker.free_memory_bytes)


def _known(amount_bytes: int | None) -> float:
    # A worker that cannot tell may try.
    return float("inf") if amount_bytes is None else amount_bytes


def _gib(amount_bytes: float) -> str:
    return f"{amount_bytes / GIB:.1f} GiB"
