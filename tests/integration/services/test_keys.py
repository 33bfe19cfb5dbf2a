"""Keys that end, that are limited, and that are made and revoked on the command line."""

import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from services.auth.repository import USE_NOTED_EVERY, create_key, get_key, list_keys
from services.auth.scopes import Scope
from services.config import Settings
from services.db.models import ApiKey
from services.db.sessions import Database
from tests.integration.services.helpers import Server, environment
from tests.integration.services.test_api import BODY, problem


def keyed(server: Server, database: Database, scopes: Iterable[str], **more: Any) -> Server:
    """The same API, opened with a new key."""
    with database.write() as session:
        return Server(server.url, create_key(session, "other", scopes=scopes, **more))


def row(database: Database) -> ApiKey:
    """The key of the fixture."""
    with database.read() as session:
        return list_keys(session)[0]


def change(database: Database, **values: Any) -> None:
    """Every key's row has these values."""
    with database.write() as session:
        session.execute(update(ApiKey).values(**values))


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/v1/jobs", Scope.READ),
        ("POST", "/v1/jobs", Scope.SUBMIT),
        ("POST", "/v1/jobs/0190b0b0-0000-7000-8000-000000000000/cancel", Scope.SUBMIT),
    ],
)
def test_a_key_does_what_its_scopes_say(
    server: Server, database: Database, method: str, path: str, needed: Scope
) -> None:
    """With all other scopes there is 403, with this one alone there is not."""
    body = {"json": BODY} if method == "POST" else {}
    others = keyed(server, database, set(Scope) - {needed})
    found = problem(others.request(method, path, **body), 403, "scope_missing")
    assert needed.value in found["detail"]
    assert keyed(server, database, [needed]).request(method, path, **body).status_code in {200, 202, 404}


def test_a_key_ends_when_it_was_said_to(server: Server, database: Database) -> None:
    """Past its time a key is as good as none; until then it opens."""
    brief = keyed(server, database, ["read"], lasts=timedelta(hours=1))
    assert brief.request("GET", "/v1/jobs").status_code == 200
    change(database, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    problem(brief.request("GET", "/v1/jobs"), 401, "unauthenticated")


def test_the_last_use_is_noted(server: Server, database: Database) -> None:
    """A key that was used says when, also when it was used long ago before."""
    assert row(database).last_used_at is None
    server.request("GET", "/v1/jobs")
    first = row(database).last_used_at
    assert first is not None
    long_ago = first - 10 * USE_NOTED_EVERY
    change(database, last_used_at=long_ago)
    server.request("GET", "/v1/jobs")
    assert row(database).last_used_at >= first


def test_use_is_written_once_a_minute(server: Server, database: Database) -> None:
    """Within a minute of the last note no request writes to the key's row."""
    server.request("GET", "/v1/jobs")
    noted = row(database).last_used_at
    for _ in range(3):
        server.request("GET", "/v1/jobs")
    assert row(database).last_used_at == noted


def test_a_refused_key_is_not_used(server: Server, database: Database) -> None:
    """A wrong secret behind a right prefix leaves no trace at the key."""
    Server(server.url, server.key[:-4] + "AAAA").request("GET", "/v1/jobs")
    assert row(database).last_used_at is None


def test_the_secret_is_not_stored(server: Server, database: Database) -> None:
    """No column holds the key or its secret part."""
    stored = {column.name: getattr(row(database), column.name) for column in ApiKey.__table__.columns}
    secret = server.key.rpartition("_")[2]
    assert secret not in json.dumps(stored, default=str)


def run(settings: Settings, *arguments: str, code: int = 0) -> Any:
    """What `ghosted keys` prints as JSON, in a process of its own that knows the database only."""
    done = subprocess.run(
        [sys.executable, "-m", "ghosted_cli", "keys", *arguments, "--json"],
        env={
            name: value
            for name, value in environment(settings).items()
            if not name.startswith("GHOSTED_") or name == "GHOSTED_DATABASE_URL"
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_command_line_keeps_keys(settings: Settings, server: Server, database: Database) -> None:
    """A key is made with its scopes and its end, is listed without its secret, opens, and opens no more."""
    made = run(settings, "create", "team", "--scope", "read", "--days", "30")
    assert (made["name"], made["scopes"], made["revoked_at"]) == ("team", ["read"], None)
    lasts = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert lasts == timedelta(days=30)
    own = Server(server.url, made["key"])
    assert own.request("GET", "/v1/jobs").status_code == 200
    listed = run(settings, "list")["items"]
    assert [key["prefix"] for key in listed if key["name"] == "team"] == [made["prefix"]]
    assert made["key"] not in json.dumps(listed)
    assert run(settings, "revoke", made["prefix"])["revoked_at"] is not None
    problem(own.request("GET", "/v1/jobs"), 401, "unauthenticated")
    assert server.request("GET", "/v1/jobs").status_code == 200


def test_the_usual_scopes_need_not_be_named(settings: Settings, database: Database) -> None:
    """A plain key can read and submit, and is no operator's."""
    made = run(settings, "create", "plain")
    assert (made["scopes"], made["expires_at"]) == (["read", "submit"], None)
    with database.read() as session:
        assert get_key(session, made["prefix"]) is not None


@pytest.mark.parametrize("arguments", [("revoke", "00000000"), ("create", "x", "--scope", "root")])
def test_commands_about_nothing_are_refused(
    settings: Settings, database: Database, arguments: tuple[str, ...]
) -> None:
    """An unknown prefix or scope is a message and exit code 10."""
    assert run(settings, *arguments, code=10)["error"]["code"] == "invalid_spec"


def test_a_missing_database_is_said_without_its_password(settings: Settings) -> None:
    """The address with its password stays out of the message; the command may be tried again."""
    gone = Settings.model_validate(
        {**settings.model_dump(), "database_url": "postgresql://nobody:hush@127.0.0.1:1/none"}
    )
    said = run(gone, "list", code=20)
    assert said["error"]["code"] == "database_unavailable"
    assert "hush" not in json.dumps(said)


def test_without_any_database_the_command_says_so(settings: Settings, tmp_path: Path) -> None:
    """Neither variable nor data folder: the message says what to set."""
    said = run(settings, "list", "--data", str(tmp_path), code=10)
    assert "GHOSTED_DATABASE_URL" in said["error"]["advice"]


def test_a_running_installation_is_found_by_its_folder(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    """The file that `ghosted up` keeps while it runs leads to its database."""
    (tmp_path / "database-url").write_text(settings.database_url.get_secret_value() + "\n")
    assert run(settings, "list", "--data", str(tmp_path)) == {"items": []}
