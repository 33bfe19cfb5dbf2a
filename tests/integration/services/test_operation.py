"""What operators see: ids on requests, figures, traces."""

import asyncio
import json
import logging
import re
import threading
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from anyio import to_thread
from prometheus_client.parser import text_string_to_metric_families

from services.app import create_app
from services.auth.repository import create_key
from services.auth.scopes import Scope
from services.config import Settings
from services.db.sessions import Database
from services.jobs import attempts, repository
from services.jobs.failures import Failure
from services.logs import json_formatter
from services.metrics import CACHE_SECONDS, Figured
from services.outbox.relay import send_due
from services.outbox.traced import traced
from services.telemetry import open_tracing
from tests.collector_double import running_collector
from tests.integration.services.conftest import serve
from tests.integration.services.helpers import ARTIFACT, EVERYONE, Server, claim, read, submit
from tests.integration.services.test_api import BODY, problem

HEX = re.compile(r"[0-9a-f]{32}")


def test_a_request_has_an_id(server: Server) -> None:
    """Every answer carries one, those of errors and of refused bodies too."""
    answers = [
        server.request("GET", "/v1/jobs"),
        server.request("GET", "/nothing"),
        server.request("POST", "/v1/jobs", content=b"x" * 300_000),
        server.request("GET", "/v1/jobs", headers={"Authorization": ""}),
    ]
    found = [answer.headers["x-request-id"] for answer in answers]
    assert all(HEX.fullmatch(one) for one in found)
    assert len(set(found)) == len(found)


def test_the_process_lives_while_all_its_threads_wait(settings: Settings) -> None:
    """A probe is answered when every thread waits for a Hub or a database."""
    release = threading.Event()

    async def probed() -> httpx2.Response:
        to_thread.current_default_thread_limiter().total_tokens = 1
        waiting = asyncio.create_task(to_thread.run_sync(release.wait))
        await asyncio.sleep(0)
        transport = httpx2.ASGITransport(create_app(settings))
        try:
            async with httpx2.AsyncClient(transport=transport, base_url="http://here") as http:
                return await asyncio.wait_for(http.get("/healthz"), 5)
        finally:
            release.set()
            await waiting

    assert asyncio.run(probed()).json() == {"status": "ok"}


def test_an_id_that_was_given_comes_back(server: Server) -> None:
    """A client finds its own id in the answer."""
    answer = server.request("GET", "/healthz", headers={"X-Request-ID": "my.id-1_2"})
    assert answer.headers["x-request-id"] == "my.id-1_2"


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, '{"level":"error"}', "-x", "caf\xe9"])
def test_what_could_confuse_a_log_is_replaced(server: Server, given: str) -> None:
    """An id of another form does not reach the logs."""
    answer = server.request("GET", "/healthz", headers={"X-Request-ID": given.encode("latin-1")})
    assert HEX.fullmatch(answer.headers["x-request-id"])


def test_a_fault_has_an_id_too(
    settings: Settings, server: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a fault of ours names the id that its lines in the log have."""

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(repository, "get", fail)
    with serve(settings) as url:
        response = Server(url, server.key).request(
            "GET", f"/v1/jobs/{uuid4()}", headers={"X-Request-ID": "mine"}
        )
    problem(response, 500, "internal")
    assert response.headers["x-request-id"] == "mine"


def test_a_request_is_a_line(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Id, method, route, status and seconds; neither the ids in the path, nor the query, nor the key."""
    caplog.handler.setFormatter(json_formatter())
    caplog.set_level(logging.INFO)
    job_id = str(uuid4())
    server.request("GET", f"/v1/jobs/{job_id}/events?after=2147483647", headers={"X-Request-ID": "mine"})
    (line,) = [json.loads(one) for one in caplog.text.splitlines() if '"event": "request"' in one]
    assert line["request_id"] == "mine"
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/jobs/{job_id}/events", 404)
    assert line["seconds"] > 0
    for secret in (job_id, "2147483647", server.key):
        assert secret not in json.dumps(line)


def test_probes_are_not_worth_a_line(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """They come every few seconds."""
    caplog.set_level(logging.INFO)
    server.request("GET", "/healthz")
    assert "request" not in [record.message for record in caplog.records]


@pytest.fixture
def operator(server: Server, database: Database) -> Server:
    """The API with a key of the scope admin."""
    with database.write() as session:
        return Server(server.url, create_key(session, "operator", scopes=[Scope.ADMIN]))


def figures(text: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_figures_are_for_operators(settings: Settings, server: Server, operator: Server) -> None:
    """Without a key there is 401, without the scope 403; the setting opens them to all or closes them."""
    assert operator.request("GET", "/metrics").status_code == 200
    problem(server.request("GET", "/metrics", headers={"Authorization": ""}), 401, "unauthenticated")
    problem(server.request("GET", "/metrics"), 403, "scope_missing")
    with serve(settings.model_copy(update={"metrics": "anyone"})) as url:
        assert httpx2.get(f"{url}/metrics").status_code == 200
    with serve(settings.model_copy(update={"metrics": "off"})) as url:
        problem(Server(url, operator.key).request("GET", "/metrics"), 404, "route_not_found")
        assert "/metrics" not in httpx2.get(f"{url}/openapi.json").json()["paths"]


def test_the_figures_are_those_of_the_jobs(settings: Settings, database: Database) -> None:
    """Waiting, running, the oldest's age, attempts by cause and seconds by stage, in Prometheus' words."""
    ended = [claim(database, submit(database)).fence for _ in range(4)]
    with database.write() as session:
        attempts.record_event(session, ended[0], "stage_finished", {"stage": "calibrate", "seconds": 2.5})
        attempts.record_event(session, ended[1], "stage_finished", {"stage": "calibrate", "seconds": 1.5})
        attempts.record_event(session, ended[1], "stage_finished", {"stage": 'x"} 1', "seconds": 1.0})
    with database.write() as session:
        attempts.finish_succeeded(session, ended[0], ARTIFACT)
        attempts.finish_failed(session, ended[1], Failure("unsafe_model", "x", "y"))
        attempts.finish_cancelled(session, ended[2])
        attempts.requeue(session, ended[3], cause="worker_lost", delay_seconds=0)
    running = claim(database, submit(database)).fence.job_id
    with serve(settings.model_copy(update={"metrics": "anyone"})) as url:
        response = httpx2.get(f"{url}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = figures(response.text)
    assert found["ghosted_jobs_queued",] == 1
    assert found["ghosted_jobs_running",] == 1
    assert 0 < found["ghosted_oldest_queued_seconds",] < 600
    for cause in ("succeeded", "unsafe_model", "cancelled", "worker_lost"):
        assert found["ghosted_attempts_total", cause] == 1
    assert found["ghosted_stage_seconds_sum", "calibrate"] == pytest.approx(4.0)
    assert found["ghosted_stage_seconds_count", "calibrate"] == 2
    assert found["ghosted_stage_seconds_count", "other"] == 1
    for fence in ended:
        assert str(fence.job_id) not in response.text
    assert str(running) not in response.text


def test_cancelling_a_waiting_job_ends_no_attempt(database: Database) -> None:
    """What never ran is no attempt."""
    job_id = submit(database)
    with database.write() as session:
        repository.request_cancel(session, EVERYONE, job_id)
    assert Figured(database)._current().attempts == {}


def test_many_scrapes_are_one_look(database: Database) -> None:
    """Within the cache's time the database is not asked again."""
    now = [0.0]
    figured = Figured(database, clock=lambda: now[0])
    assert figured._current().queued == 0
    submit(database)
    assert figured._current().queued == 0
    now[0] += CACHE_SECONDS
    assert figured._current().queued == 1


def test_a_trace_goes_from_the_request_through_the_relay_to_the_worker(
    settings: Settings, server: Server, database: Database
) -> None:
    """One trace over the wire: the user's own span, the API's, the relay's, and what a worker is handed."""
    outer = f"00-{'a' * 32}-{'b' * 16}-01"
    with running_collector() as collector:
        with serve(settings.model_copy(update={"otlp_endpoint": collector.endpoint})) as url:
            made = Server(url, server.key).request(
                "POST", "/v1/jobs", json={**BODY, "labels": {"x": "hush"}}, headers={"traceparent": outer}
            )
            Server(url, server.key).request("GET", f"/v1/jobs/{made.json()['id']}")
        relay = open_tracing(collector.endpoint, "ghosted-relay")
        with database.write() as session:
            assert send_due(session, traced(lambda *_: None, relay, database)) == 1
        relay.close()
    job_id = made.json()["id"]
    request = collector.named("POST request")
    assert (request.trace, request.parent) == ("a" * 32, "b" * 16)
    assert request.attributes["http.route"] == "/v1/jobs"
    assert request.attributes["http.response.status_code"] == "202"
    stored = read(database, job_id).traceparent
    assert stored is not None
    assert stored.startswith(f"00-{request.trace}-{request.span}-")
    assert claim(database, job_id).traceparent == stored
    published = collector.named("publish ghosted.run_job")
    assert (published.service, published.trace, published.parent) == (
        "ghosted-relay",
        request.trace,
        request.span,
    )
    assert published.attributes == {"ghosted.job_id": job_id}
    assert collector.paths == {"/v1/traces"}
    assert "hush" not in str(collector.spans)
    assert collector.named("GET request").trace != request.trace


def test_without_an_endpoint_a_job_has_no_trace(server: Server, database: Database) -> None:
    """Nothing is stored, whatever the request's headers say."""
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    made = server.request("POST", "/v1/jobs", json=BODY, headers=headers)
    assert read(database, made.json()["id"]).traceparent is None


def test_a_collector_that_is_away_holds_nothing_up(settings: Settings, server: Server) -> None:
    """Requests are answered as without it, and the process ends."""
    with serve(settings.model_copy(update={"otlp_endpoint": "http://127.0.0.1:1"})) as url:
        assert Server(url, server.key).submit(BODY).status_code == 202
