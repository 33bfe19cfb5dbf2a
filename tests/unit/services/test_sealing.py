from uuid import uuid4

import pytest
from pydantic import SecretStr, ValidationError

from services.config import Settings
from services.errors import TokensNotAcceptedError, TokenUnreadableError
from services.sealing import SHORTEST, SecretBox
from tests.unit.services.test_config import REQUIRED

OLD, NEW = "old-" * 10, "new-" * 10
TOKEN = SecretStr("hf_abcdefghijklmnop")


def box(*secrets: str) -> SecretBox:
    return SecretBox.of(SecretStr(",".join(secrets)))


def test_a_sealed_token_opens_again() -> None:
    """What was sealed for a job is what is read for it, and the sealed form does not show it."""
    job_id = uuid4()
    sealed = box(OLD).seal(TOKEN, job_id)
    assert TOKEN.get_secret_value() not in sealed
    assert box(OLD).open(sealed, job_id) == TOKEN


def test_equal_tokens_are_sealed_differently() -> None:
    """The rows do not tell that two jobs came with the same token."""
    job_id = uuid4()
    assert box(OLD).seal(TOKEN, job_id) != box(OLD).seal(TOKEN, job_id)


def test_keys_rotate() -> None:
    """With a new key in front, old rows open and new ones are sealed with the new key alone."""
    job_id = uuid4()
    assert box(NEW, OLD).open(box(OLD).seal(TOKEN, job_id), job_id) == TOKEN
    fresh = box(NEW, OLD).seal(TOKEN, job_id)
    assert box(NEW).open(fresh, job_id) == TOKEN
    with pytest.raises(TokenUnreadableError):
        box(OLD).open(fresh, job_id)


def test_a_token_belongs_to_its_job() -> None:
    """Copied into another job's row it does not open."""
    sealed = box(OLD).seal(TOKEN, uuid4())
    with pytest.raises(TokenUnreadableError):
        box(OLD).open(sealed, uuid4())


def test_a_changed_row_does_not_open() -> None:
    """Encryption is authenticated."""
    job_id = uuid4()
    sealed = box(OLD).seal(TOKEN, job_id)
    for changed in (sealed[:-8] + "AAAAAAA=", "", "x", sealed[::-1]):
        with pytest.raises(TokenUnreadableError):
            box(OLD).open(changed, job_id)


@pytest.mark.parametrize("secrets", [None, SecretStr(""), SecretStr(" , ")])
def test_without_keys_no_token_is_taken(secrets: SecretStr | None) -> None:
    """There is no plain form to fall back to."""
    empty = SecretBox.of(secrets)
    with pytest.raises(TokensNotAcceptedError):
        empty.seal(TOKEN, uuid4())
    with pytest.raises(TokenUnreadableError):
        empty.open(box(OLD).seal(TOKEN, uuid4()), uuid4())


def test_a_short_key_is_refused_unshown() -> None:
    """A process does not start with a key that could be guessed, and does not print it."""
    short = "hush" * (SHORTEST // 4 - 1)
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({**REQUIRED, "secret_key": f"{OLD},{short}"})
    assert "hush" not in str(caught.value)


def test_the_box_does_not_show_its_keys() -> None:
    """Nothing of a key stands in a representation."""
    assert OLD not in repr(box(OLD))
    assert "Fernet" not in repr(box(OLD))
