"""Links are given out to somebody, and the log says to whom."""

import json
import logging

import httpx2
import pytest

from ghosted_client import Job
from services.logs import json_formatter
from tests.integration.services.finished import FILES
from tests.integration.services.helpers import Server
from tests.integration.services.uploading import begin


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(one) for one in caplog.text.splitlines() if '"event": "link given"' in one]


@pytest.fixture(autouse=True)
def _as_json(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(json_formatter())
    caplog.set_level(logging.INFO)


def test_each_link_to_a_file_is_a_line(server: Server, done: Job, caplog: pytest.LogCaptureFixture) -> None:
    """Request, key prefix, job and file; never the link, nor the key."""
    caplog.clear()
    answer = server.request("GET", f"/v1/jobs/{done.id}/artifact", headers={"X-Request-ID": "mine"})
    told = lines(caplog)
    assert {line["file"] for line in told} == set(FILES)
    prefix = server.key.split("_")[1]
    for line in told:
        assert (line["request_id"], line["key_prefix"], line["job_id"]) == ("mine", prefix, str(done.id))
    links = [httpx2.URL(file["url"]) for file in answer.json()["files"]]
    secrets = [server.key, *(link.params["X-Amz-Signature"] for link in links)]
    assert not any(secret in caplog.text for secret in secrets)


def test_a_refused_link_is_none(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Of a job without an artifact nothing is given out."""
    job = server.submit({"model": "owner/tiny", "layers": 2}).json()
    assert server.request("GET", f"/v1/jobs/{job['id']}/artifact").status_code == 409
    assert lines(caplog) == []


@pytest.mark.usefixtures("no_uploads")
def test_a_link_for_an_upload_is_a_line(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """With the upload's id."""
    begun = begin(server)
    (line,) = lines(caplog)
    assert (line["purpose"], line["upload_id"]) == ("upload", begun["id"])
    assert httpx2.URL(begun["url"]).params["X-Amz-Signature"] not in caplog.text
