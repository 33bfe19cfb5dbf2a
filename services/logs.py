"""Logs: one JSON object a line, with the ids of what it is about."""

import logging
import sys
from typing import Any

import structlog
from structlog.types import Processor

from services.jobs.values import storable

# What may stand in a line beside event, level, logger and time; bound where it becomes known.
FIELDS = ("request_id", "job_id", "attempt", "stage", "trace_id")
# These say at `info` what our own lines say already.
CHATTY = ("httpx", "httpx2", "botocore", "boto3", "urllib3", "alembic.runtime.migration")


def configure_logging(level: str) -> None:
    """Everything that this process logs is a JSON object a line on stderr, from `level` on.

    Whatever is bound with `structlog.contextvars` where a line is logged stands in it.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(json_formatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def json_formatter() -> logging.Formatter:
    """Makes a JSON object of each record of the standard library's logging."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _add_extra,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        # As text: a structured traceback would hold the values of variables.
        structlog.processors.format_exc_info,
    ]
    return structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _sayable,
            structlog.processors.JSONRenderer(default=str, allow_nan=False),
        ],
        foreign_pre_chain=shared,
    )


def _sayable(_logger: Any, _method: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """Null stands for what JSON has no number for."""
    found: structlog.types.EventDict = storable(dict(line))
    return found


def _add_extra(_logger: Any, _method: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """What a call of the logger names in `extra={"fields": {...}}` stands in the line."""
    record = line.get("_record")
    fields = getattr(record, "fields", None)
    return {**line, **fields} if isinstance(fields, dict) else line
