import json
import logging
from typing import Any

import pytest
from structlog.contextvars import bound_contextvars

from services.logs import json_formatter


def fail(value: str) -> None:
    raise ZeroDivisionError


def formatted(message: str, *values: Any, fault: bool = False, **extra: Any) -> dict[str, Any]:
    """The line that a record becomes."""
    info = None
    if fault:
        with pytest.raises(ZeroDivisionError) as caught:
            fail("hu" + "sh")
        info = (caught.type, caught.value, caught.tb)
    logger = logging.getLogger("somewhere")
    record = logger.makeRecord("somewhere", logging.WARNING, __file__, 1, message, values, info, extra=extra)
    line = json_formatter().format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_is_a_json_object() -> None:
    """Message, level, logger and UTC time, whatever the message holds."""
    line = formatted('a "%s"\nof %d', "kind", 2)
    assert (line["event"], line["level"], line["logger"]) == ('a "kind"\nof 2', "warning", "somewhere")
    assert line["time"].endswith("Z")


def test_bound_ids_stand_in_every_line() -> None:
    """What is bound while a line is logged stands in it, and afterwards in none."""
    with bound_contextvars(job_id="j", attempt=2, stage="fit"):
        inside = formatted("x")
    assert (inside["job_id"], inside["attempt"], inside["stage"]) == ("j", 2, "fit")
    assert "job_id" not in formatted("x")


def test_fields_of_a_line_are_its_own() -> None:
    """Numbers stay numbers."""
    assert formatted("x", fields={"status": 200, "seconds": 0.5})["status"] == 200


def test_a_traceback_shows_no_variables() -> None:
    """The exception stands in the line as text, without the values around it."""
    line = formatted("x", fault=True)
    assert "ZeroDivisionError" in line["exception"]
    assert "hush" not in json.dumps(line)


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_no_value_breaks_a_line(value: object) -> None:
    """What JSON cannot say is said in words, or the line would be lost."""
    assert "value" in formatted("x", fields={"value": value})
