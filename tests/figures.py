"""Figures as the database has them."""

from typing import Any
from uuid import UUID

from services.db.models import JobMetric


def metric(name: str, value: float | None, reason: str | None = None, **detail: Any) -> JobMetric:
    """A figure of a job, by its whole name."""
    return JobMetric(
        job_id=UUID(int=1), number=1, attempt=1, name=name, value=value, reason=reason, detail=detail
    )
