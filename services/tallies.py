"""Counts that only grow, kept where what they count is committed: the figures that operators watch."""

import re

from sqlalchemy.dialects.postgresql import insert

from ghosted_core.recorder import Stage
from services.db.models import Tally
from services.db.sessions import WriteSession

ATTEMPTS = "attempts"
STAGES = "stages"
OTHER = "other"
# Stages that the job's process does not know of.
OUTER_STAGES = frozenset({"upload", "verify"})
KNOWN_STAGES = OUTER_STAGES | {stage.value for stage in Stage}
CAUSE = re.compile(r"[a-z][a-z_]{0,62}")


def count_attempt(session: WriteSession, cause: str) -> None:
    """One more attempt has ended, for this reason: a code of docs/errors.md, or how a job ends well."""
    # A job's process says some of these words; it must not invent labels.
    _add(session, ATTEMPTS, cause if CAUSE.fullmatch(cause) else OTHER, 0.0)


def count_stage(session: WriteSession, stage: str, seconds: float) -> None:
    """One more stage has ended, after so many seconds."""
    _add(session, STAGES, stage if stage in KNOWN_STAGES else OTHER, max(0.0, seconds))


def _add(session: WriteSession, name: str, label: str, seconds: float) -> None:
    statement = insert(Tally).values(name=name, label=label, count=1, seconds=seconds)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[Tally.name, Tally.label],
            set_={"count": Tally.count + 1, "seconds": Tally.seconds + seconds},
        )
    )
