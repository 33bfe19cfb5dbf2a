from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest

from ghosted_core.recorder import Logged
from services.db.sessions import Database
from services.jobs.attempts import Fence
from services.telemetry import NoTracing
from worker.ledger import Ledger
from worker.stages import StageSpans


class Told(Ledger):
    """Remembers what users are told instead of writing it down."""

    def _event(self, kind: str, payload: dict[str, object]) -> None:
        self.told = (kind, payload)


def test_users_are_not_told_what_a_program_printed(caplog: pytest.LogCaptureFixture) -> None:
    """It goes to the worker's log, without secrets."""
    fence = Fence(uuid4(), 1, uuid4())
    ledger = Told(cast("Database", None), fence, Path("/scratch"), StageSpans(NoTracing()))
    ledger.hide("hf_secret")
    ledger.record(Logged("It ended (ValueError).", "warning", "in /srv/private, with hf_secret"))
    assert ledger.told == ("log", {"level": "warning", "message": "It ended (ValueError)."})
    (line,) = caplog.messages
    assert line.endswith("in /srv/private, with (hidden)")
