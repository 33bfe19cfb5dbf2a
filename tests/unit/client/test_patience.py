from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ghosted_client.errors import (
    ArtifactExpiredError,
    ClientError,
    ConflictError,
    ConnectionFailedError,
    InvalidError,
    NotAuthenticatedError,
    Problem,
    TemporaryError,
    TooManyError,
    api_error,
)
from ghosted_client.patience import Patience, passing, retry_after

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PATIENCE = Patience(waits_seconds=(1.0, 2.0), longest_seconds=10.0)


def refused(status: int, code: str = "x", after: float | None = None) -> ClientError:
    return api_error(Problem(status, code, "t", "d", "a", retry_after_seconds=after))


@pytest.mark.parametrize("seconds", [0, 1, 3600])
def test_retry_after_is_read_in_both_forms(seconds: int) -> None:
    """As seconds and as a date it means the same."""
    moment = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    for text in (str(seconds), moment):
        assert retry_after({"retry-after": text}, NOW) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_what_is_no_time_harms_nothing(text: str) -> None:
    """Another text asks for nothing, or for a number that is still one."""
    found = retry_after({"retry-after": text}, NOW)
    assert found is None or 0 <= found < 1e9


def test_a_moment_in_the_past_is_now() -> None:
    """Nobody waits for what was."""
    assert retry_after({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, NOW) == 0


def test_waits_grow_and_end() -> None:
    """Each try has its wait; after the last there is none."""
    error = ConnectionFailedError("x")
    assert [PATIENCE.wait(tries, error) for tries in (1, 2, 3)] == [1.0, 2.0, None]


@pytest.mark.parametrize("status", [429, 503])
def test_the_service_is_never_asked_too_early(status: int) -> None:
    """The longer of our wait and its `Retry-After` counts; what is longer than allowed is handed on."""
    waits = [PATIENCE.wait(1, refused(status, after=after)) for after in (None, 0.5, 5.0, 11.0)]
    assert waits == [1.0, 1.0, 5.0, None]


def test_only_what_may_pass_is_tried_again() -> None:
    """A request that is wrong stays wrong."""
    assert [passing(refused(status)) for status in (400, 401, 404, 409, 422, 429, 500, 503)] == [
        *(False,) * 5,
        *(True,) * 3,
    ]
    assert passing(refused(409, "idempotency_in_progress"))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (410, "artifact_expired", ArtifactExpiredError),
        (409, "something_new", ConflictError),
        (401, "unauthenticated", NotAuthenticatedError),
        (418, "teapot", InvalidError),
        (429, "too_many_jobs", TooManyError),
        (507, "unheard_of", TemporaryError),
    ],
)
def test_errors_have_the_type_of_their_code_or_status(status: int, code: str, kind: type) -> None:
    """Codes that this version does not know still have the type of their status, and keep their code."""
    error = refused(status, code)
    assert type(error) is kind
    assert error.code == code
