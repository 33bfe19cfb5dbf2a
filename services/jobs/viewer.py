from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, true

from services.db.models import Job


@dataclass(frozen=True)
class Viewer:
    """Whose jobs may be seen: those of one key, or, where authentication is off, all."""

    owner_id: UUID | None

    def sees(self) -> ColumnElement[bool]:
        """The condition on a job's row."""
        return true() if self.owner_id is None else Job.owner_id == self.owner_id
