import pytest
from pydantic import ValidationError

from services.config import Settings, load_settings

REQUIRED = {
    "database_url": "postgresql://user:hush@localhost/x",
    "redis_url": "redis://:hush@localhost/0",
    "s3_access_key": "a",
    "s3_secret_key": "hush",
}


def test_the_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables named GHOSTED_* are read by `load_settings`, not when modules are imported."""
    for name, value in REQUIRED.items():
        monkeypatch.setenv(f"GHOSTED_{name.upper()}", value)
    monkeypatch.setenv("GHOSTED_LEASE_SECONDS", "90")
    assert load_settings().lease_seconds == 90


def test_secrets_do_not_print() -> None:
    """Neither text nor JSON of the settings shows a password."""
    settings = Settings.model_validate(REQUIRED)
    assert "hush" not in repr(settings)
    assert "hush" not in settings.model_dump_json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_seconds": 15, "heartbeat_seconds": 10},
        {"deadline_default_seconds": 10, "deadline_max_seconds": 5},
        {"link_seconds": 7200},
        {"s3_bucket": "ab"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    """A process does not start with them."""
    with pytest.raises(ValidationError):
        Settings.model_validate({**REQUIRED, **wrong})


@pytest.mark.parametrize("name", ["database_url", "redis_url"])
@pytest.mark.parametrize("value", ["hush", "http://u:hush@localhost/x", "", "postgresql:/hush", "redis:hush"])
def test_addresses_of_another_kind_are_refused_unshown(name: str, value: str) -> None:
    """The message names the setting and the schemes it takes, and nothing of the value."""
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({**REQUIRED, name: value})
    message = str(caught.value)
    assert name in message
    assert "://" in message
    assert "hush" not in message
    assert "localhost" not in message


@pytest.mark.parametrize(
    "right",
    [
        {"database_url": "postgres://user:hush@localhost/x"},
        {"database_url": "postgresql+psycopg://user:hush@localhost/x"},
        {"redis_url": "rediss://localhost/0"},
    ],
)
def test_every_usual_scheme_is_taken(right: dict[str, str]) -> None:
    """Addresses as hosting providers hand them out are accepted."""
    Settings.model_validate({**REQUIRED, **right})
