"""How much one key may ask for, and what others notice of it."""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from redis import Redis

from services.artifacts.storage import ArtifactStore
from services.auth.repository import create_key
from services.config import Settings
from services.db.sessions import Database
from services.errors import TooManyJobsError, TooManyRequestsError
from services.limits import KEY_PREFIX, PAUSE_SECONDS, Limiter
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import Server, claim
from tests.integration.services.test_api import BODY, problem


@pytest.fixture(autouse=True)
def _forgotten(settings: Settings) -> None:
    """No count of an earlier test is left."""
    with Redis.from_url(settings.redis_url.get_secret_value()) as redis:
        for key in redis.scan_iter(f"{KEY_PREFIX}*"):
            redis.delete(key)


def limited(settings: Settings, **limits: int) -> Settings:
    return settings.model_copy(update=limits)


def another(server: Server, database: Database, url: str) -> Server:
    with database.write() as session:
        return Server(url, create_key(session, "another"))


def check_retry_after(response: Any, most: int) -> None:
    assert 1 <= int(response.headers["retry-after"]) <= most


def test_requests_of_a_key_are_limited(settings: Settings, server: Server, database: Database) -> None:
    """As many as allowed pass, the next is 429 with Retry-After, and another key notices nothing."""
    with serve(limited(settings, requests_per_minute=3)) as url:
        own = Server(url, server.key)
        answers = [own.request("GET", "/v1/jobs") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        problem(answers[-1], 429, "too_many_requests")
        check_retry_after(answers[-1], 60)
        assert another(server, database, url).request("GET", "/v1/jobs").status_code == 200
        assert own.request("GET", "/healthz").status_code == 200


def test_processes_share_the_count(settings: Settings) -> None:
    """Two limiters on one Redis let through together what one would."""
    first, second = (Limiter(limited(settings, requests_per_minute=2)) for _ in range(2))
    first.count_request("k")
    second.count_request("k")
    for limiter in (first, second):
        with pytest.raises(TooManyRequestsError):
            limiter.count_request("k")


def test_jobs_of_a_day_are_limited(settings: Settings, server: Server, database: Database) -> None:
    """The job beyond is not made; submissions that are refused for another reason do not count."""
    with serve(limited(settings, jobs_per_day=2)) as url:
        own = Server(url, server.key)
        for _ in range(3):
            assert own.submit({**BODY, "layers": 0}).status_code == 422
        assert [own.submit(BODY).status_code for _ in range(2)] == [202, 202]
        response = own.submit(BODY)
        problem(response, 429, "too_many_jobs")
        check_retry_after(response, 86_400)
        assert len(own.request("GET", "/v1/jobs").json()["items"]) == 2
        assert another(server, database, url).submit(BODY).status_code == 202


def test_waiting_jobs_are_limited(settings: Settings, server: Server, database: Database) -> None:
    """A place is free again once a job begins; jobs of another key take none."""
    with serve(limited(settings, queued_jobs_per_key=2)) as url:
        own, other = Server(url, server.key), another(server, database, url)
        assert [other.submit(BODY).status_code for _ in range(2)] == [202, 202]
        first = own.submit(BODY).json()["id"]
        assert own.submit(BODY).status_code == 202
        response = own.submit(BODY)
        problem(response, 429, "too_many_jobs")
        check_retry_after(response, 60)
        claim(database, first)
        assert own.submit(BODY).status_code == 202


def test_the_last_place_is_taken_once(settings: Settings, server: Server) -> None:
    """Of submissions at the same moment no more pass than there are places."""
    with serve(limited(settings, queued_jobs_per_key=3)) as url, ThreadPoolExecutor(8) as pool:
        own = Server(url, server.key)
        codes = list(pool.map(lambda _: own.submit(BODY).status_code, range(8)))
    assert sorted(codes) == [202] * 3 + [429] * 5


def test_without_keys_waiting_jobs_are_limited_together(settings: Settings, database: Database) -> None:
    """Where authentication is off, all jobs belong to nobody and share the places."""
    with serve(limited(settings, auth_enabled=False, queued_jobs_per_key=1)) as url:
        own = Server(url, "none")
        assert [own.submit(BODY).status_code for _ in range(2)] == [202, 429]


def test_without_redis_requests_pass(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is turned away because the counts are out of reach; a warning says so, without the address."""
    gone = Settings.model_validate(
        {
            **settings.model_dump(),
            "redis_url": "redis://:hush@127.0.0.1:1/0",
            "requests_per_minute": 1,
            "jobs_per_day": 1,
        }
    )
    now = [0.0]
    limiter = Limiter(gone, clock=lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            limiter.count_request("k")
            limiter.count_job("k")
    # One, because Redis is left alone for a while.
    assert len(caplog.records) == 1
    now[0] += PAUSE_SECONDS
    limiter.count_job("k")
    assert len(caplog.records) == 2
    assert "hush" not in caplog.text
    assert "127.0.0.1" not in caplog.text


def test_redis_is_asked_again_after_a_pause(settings: Settings) -> None:
    """Counting goes on once the pause is over."""
    now = [0.0]
    limiter = Limiter(limited(settings, jobs_per_day=1), clock=lambda: now[0])
    limiter._resume_at = PAUSE_SECONDS
    limiter.count_job("k")
    limiter.count_job("k")
    now[0] = PAUSE_SECONDS
    limiter.count_job("k")
    with pytest.raises(TooManyJobsError):
        limiter.count_job("k")


def test_requests_without_a_valid_key_are_limited(settings: Settings, server: Server) -> None:
    """By address, whatever key they bring; a valid key from there passes all the same."""
    with serve(limited(settings, failed_keys_per_minute=2)) as url:
        keys = ["ghosted_00000000_" + "0" * 43, "nonsense", server.key[:-1] + "x"]
        answers = [Server(url, key).request("GET", "/v1/jobs") for key in keys]
        assert [answer.status_code for answer in answers] == [401, 401, 429]
        problem(answers[-1], 429, "too_many_requests")
        check_retry_after(answers[-1], 60)
        assert Server(url, server.key).request("GET", "/v1/jobs").status_code == 200


def test_a_strangers_word_is_no_address(settings: Settings) -> None:
    """Whoever sends another X-Forwarded-For each time is counted as one, for no proxy is trusted."""
    with serve(limited(settings, failed_keys_per_minute=2)) as url:
        answers = [
            Server(url, "nonsense").request("GET", "/v1/jobs", headers={"X-Forwarded-For": f"10.0.0.{last}"})
            for last in range(3)
        ]
    assert [answer.status_code for answer in answers] == [401, 401, 429]


@pytest.mark.parametrize("path", ["/v1/strategies", "/v1/recoveries", "/readyz"])
def test_requests_that_need_no_key_are_limited(settings: Settings, store: ArtifactStore, path: str) -> None:
    """By address; what asks nobody is not counted."""
    with serve(limited(settings, requests_per_minute=2)) as url:
        answers = [httpx2.get(url + path, timeout=30) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        check_retry_after(answers[-1], 60)
        assert httpx2.get(url + "/healthz").status_code == 200
