"""When a worker takes itself for stuck."""

from uuid import UUID, uuid4

import pytest

from worker.watchdog import Suspicion, Verdict, Waiting

LIMIT = 120.0
STEP = 5.0
NOTHING = Verdict()


def watch(job_id: UUID, sent_at: float, *, until: float, nudge: bool) -> tuple[list[float], float | None]:
    """When wake-ups were asked for again and when the worker was found stuck, if the job waits for ever.

    `nudge`: the relay sends again what is asked for.
    """
    suspicion, asked, sent = Suspicion(LIMIT), [], sent_at
    now = 0.0
    while now <= until:
        verdict = suspicion.look([Waiting(job_id, now - sent)], now)
        if verdict.unheard:
            asked.append(now)
            sent = now if nudge else sent
        if verdict.stuck is not None:
            return asked, now
        now += STEP
    return asked, None


def test_a_wake_up_of_before_is_sent_again_first() -> None:
    """A job announced before the worker watched is announced anew at half time; in vain, it is stuck."""
    assert watch(uuid4(), -1000.0, until=600, nudge=True) == ([60.0], 120.0)


def test_nobody_announces() -> None:
    """If nothing sends the wake-up again, the worker is not to blame, however long that takes."""
    assert watch(uuid4(), -1000.0, until=2000, nudge=False) == ([60.0], None)


def test_announced_while_watched() -> None:
    """A job announced while the worker watched and did nothing needs no second announcement."""
    suspicion = Suspicion(LIMIT)
    job_id = uuid4()
    assert suspicion.look([Waiting(job_id, None)], 0.0) == NOTHING
    for now in range(5, 120, 5):
        assert suspicion.look([Waiting(job_id, float(now) - 2)], float(now)) == NOTHING
    assert suspicion.look([Waiting(job_id, 118.0)], 120.0) == Verdict((), job_id)


@pytest.mark.parametrize("pause", [10.0, 60.0, 110.0])
def test_work_dispels_it(pause: float) -> None:
    """A worker that does something in between is not stuck before the whole time has passed again."""
    suspicion, job_id = Suspicion(LIMIT), uuid4()
    suspicion.look([Waiting(job_id, None)], 0.0)
    suspicion.look([Waiting(job_id, pause)], pause)
    suspicion.clear()
    suspicion.look([Waiting(job_id, None)], pause)
    assert suspicion.look([Waiting(job_id, 40.0)], pause + LIMIT - 1).stuck is None
    assert suspicion.look([Waiting(job_id, 41.0)], pause + LIMIT).stuck == job_id


def test_jobs_that_others_take() -> None:
    """Where every job is taken by someone in time, an idle worker is well, however many there are."""
    suspicion = Suspicion(LIMIT)
    for step in range(200):
        now = 10.0 * step
        assert suspicion.look([Waiting(uuid4(), 1.0)], now) == NOTHING


def test_just_sent_again() -> None:
    """A wake-up that was sent a moment ago may still be followed."""
    suspicion, job_id = Suspicion(LIMIT), uuid4()
    suspicion.look([Waiting(job_id, None)], 0.0)
    assert suspicion.look([Waiting(job_id, 1.0)], 300.0).stuck is None
