"""Jobs that name uploads."""

import hashlib
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from ghosted_core.spec import JobSpec
from services.artifacts.storage import ArtifactStore
from services.db.models import Job, Upload
from services.db.sessions import Database
from services.uploads.references import pinned_uploads
from tests.integration.services.helpers import Server
from tests.integration.services.test_api import BODY, problem
from tests.integration.services.uploading import (
    CONTENT,
    PARTS,
    begin,
    complete,
    expire,
    job_on,
    let_expire,
    named_in,
    send,
    stored,
    uploaded,
)

pytestmark = pytest.mark.usefixtures("no_uploads")


def test_a_text_is_sent_checked_and_named(server: Server, database: Database) -> None:
    """After it was completed a job may name the upload, and its spec holds the content's checksum."""
    begun = begin(server)
    assert begun["complete"] is False
    assert send(begun).status_code == 200
    done = complete(server, begun).json()
    checksum = hashlib.sha256(CONTENT).hexdigest()
    assert (done["complete"], done["documents"], done["sha256"]) == (True, 2, checksum)
    assert server.request("GET", f"/v1/uploads/{begun['id']}").json() == done
    for part in PARTS:
        job = server.submit(job_on(begun["id"], part)).json()
        assert named_in(job["spec"], part) == {"kind": "upload", "id": begun["id"], "sha256": checksum}


def test_jobs_cannot_name_foreign_uploads(server: Server, other: Server, database: Database) -> None:
    """A job on another key's upload is not made."""
    upload_id = uploaded(server)
    for part in PARTS:
        problem(other.submit(job_on(upload_id, part)), 404, "upload_not_found")
    with database.read() as session:
        assert session.scalars(select(Job)).all() == []


def test_a_checksum_that_was_given_must_be_right(server: Server) -> None:
    """A user may say which content is meant; another one is refused."""
    upload_id = uploaded(server)
    right, wrong = hashlib.sha256(CONTENT).hexdigest(), "0" * 64
    for checksum, status in ((right, 202), (wrong, 422)):
        named = {"kind": "upload", "id": upload_id, "sha256": checksum}
        response = server.submit({**BODY, "calibration": {"dataset": named}})
        assert response.status_code == status


def test_an_upload_stays_until_the_job_that_names_it_is_there(server: Server, database: Database) -> None:
    """Between the look at an upload and the commit of its job nobody can delete it."""
    upload_id = UUID(uploaded(server))
    spec = JobSpec.model_validate(job_on(str(upload_id)))
    deleting = select(Upload.id).where(Upload.id == upload_id).with_for_update(nowait=True)
    with database.write() as submitting, database.write() as other:
        pinned_uploads(submitting, spec, None, keep=True)
        with pytest.raises(OperationalError), other.begin_nested():
            other.scalar(deleting)


def test_a_validation_looks_for_uploads(server: Server, other: Server) -> None:
    """A foreign one, an unfinished one and a good one are answered as a submission is."""
    good, unfinished = uploaded(server), begin(server)["id"]
    for who, named in ((other, good), (server, str(uuid4())), (server, unfinished)):
        refused = who.request("POST", "/v1/jobs:validate", json=job_on(named))
        assert refused.status_code in {404, 422}
        assert refused.json() == who.submit(job_on(named)).json()
    found = server.request("POST", "/v1/jobs:validate", json=job_on(good)).json()
    assert found["spec_digest"] == server.submit(job_on(good)).json()["spec_digest"]


@pytest.mark.parametrize("part", PARTS)
def test_an_upload_in_use_stays(server: Server, database: Database, store: ArtifactStore, part: str) -> None:
    """While a job that names it waits or runs it is neither deleted nor expires; afterwards it is."""
    upload_id = uploaded(server)
    job_id = server.submit(job_on(upload_id, part)).json()["id"]
    problem(server.request("DELETE", f"/v1/uploads/{upload_id}"), 409, "upload_in_use")
    let_expire(database)
    assert expire(database, store) == 0
    assert stored(store, upload_id)
    server.request("POST", f"/v1/jobs/{job_id}/cancel")
    assert expire(database, store) == 1
    assert stored(store, upload_id) == []
