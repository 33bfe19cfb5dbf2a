"""The tables. What a column means is said here; what may change it is said in the repositories."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from services.db.ids import new_id
from services.jobs.states import ACTIVE_STATES, STATES, JobState

CODE_LENGTH = 64
NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Every table: named constraints, JSON as JSONB, times with their zone."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        UUID: Uuid(),
        float: Double(),
        str: Text(),
    }


class ApiKey(Base):
    """A key that a user presents: its prefix to find it by, its SHA-256 to compare with."""

    __tablename__ = "api_keys"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    prefix: Mapped[str] = mapped_column(String(16), unique=True)
    digest: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String(16)), server_default=text("'{read,submit}'"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # From then on the key opens nothing; null: it does not end by itself.
    expires_at: Mapped[datetime | None]
    # To within a minute: writing it at every request would make a write of every read.
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class Login(Base):
    """A browser in which someone has logged in with a key; the key's end is its end too."""

    __tablename__ = "logins"
    __table_args__ = (Index("ix_logins_expires_at", "expires_at"),)

    # SHA-256 of the random text in the browser's cookie.
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]


def _sql_list(values: frozenset[JobState]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))


class Job(Base):
    """One request to compress a model, from submission to its end."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"state IN ({_sql_list(STATES)})", name="state_known"),
        CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name="running_has_lease"),
        CheckConstraint("(lease_token IS NULL) = (lease_expires_at IS NULL)", name="lease_whole"),
        CheckConstraint("(state = 'failed') = (failure IS NOT NULL)", name="failed_has_failure"),
        CheckConstraint(
            f"(state IN ({_sql_list(ACTIVE_STATES)})) = (finished_at IS NULL)", name="ended_has_finished_at"
        ),
        # Whatever code ends a job: with a token left in it, the database refuses.
        CheckConstraint(
            f"hub_token IS NULL OR state IN ({_sql_list(ACTIVE_STATES)})", name="ended_has_no_token"
        ),
        Index("ix_jobs_owner_id_id", "owner_id", "id"),
        Index("ix_jobs_owner_id_state_id", "owner_id", "state", "id"),
        Index("ix_jobs_owner_id_model_id", "owner_id", "model", "id"),
        Index(
            "ix_jobs_labels",
            "labels",
            postgresql_using="gin",
            postgresql_ops={"labels": "jsonb_path_ops"},
            postgresql_where=text("labels <> '{}'::jsonb"),
        ),
        Index("ix_jobs_queued", "id", postgresql_where=text("state = 'queued'")),
        Index("ix_jobs_running_lease", "lease_expires_at", postgresql_where=text("state = 'running'")),
        Index("ix_jobs_running_worker", "worker", postgresql_where=text("state = 'running'")),
        # What failed lately, for the system page.
        Index("ix_jobs_failed", "finished_at", postgresql_where=text("state = 'failed'")),
        # Without it, deleting a job would read the whole table for its clones.
        Index("ix_jobs_retry_of", "retry_of", postgresql_where=text("retry_of IS NOT NULL")),
        Index(
            "ix_jobs_unswept",
            "finished_at",
            postgresql_where=text("finished_at IS NOT NULL AND objects_swept_at IS NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    # Null where authentication is off: the job belongs to whoever can reach the service.
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("api_keys.id"))
    spec: Mapped[dict[str, Any]]
    spec_digest: Mapped[str] = mapped_column(String(64))
    # Which model the spec names: the repository or alias, without revision, to find the job by.
    model: Mapped[str | None]
    # The job of which this one is a clone; its deletion leaves the clone.
    retry_of: Mapped[UUID | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    labels: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    deadline_seconds: Mapped[int] = mapped_column(Integer)
    # Encrypted (services.sealing), and null once the job has ended.
    hub_token: Mapped[str | None]
    # The W3C trace context of the submission: every attempt belongs to its trace.
    traceparent: Mapped[str | None] = mapped_column(String(55))

    state: Mapped[str] = mapped_column(String(16), server_default=text("'queued'"))
    # How often a worker has begun; 0 until the first claim.
    attempt: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    lease_token: Mapped[UUID | None]
    lease_expires_at: Mapped[datetime | None]
    worker: Mapped[str | None]
    cancel_requested_at: Mapped[datetime | None]

    stage: Mapped[str | None] = mapped_column(String(CODE_LENGTH))
    stage_done: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    stage_total: Mapped[int | None] = mapped_column(BigInteger)
    stage_unit: Mapped[str | None] = mapped_column(String(32))
    stage_started_at: Mapped[datetime | None]
    last_seen_at: Mapped[datetime | None]

    failure: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    # The number of the job's latest event. Raised under the row's lock, so events have no gaps.
    event_count: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # When the latest attempt began; the deadline counts from here.
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    # When the objects of all attempts but the successful one were deleted.
    objects_swept_at: Mapped[datetime | None]
    # What an attempt takes of its worker, as foretold at submission; null where that is not known.
    needs_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    needs_disk_bytes: Mapped[int | None] = mapped_column(BigInteger)

    artifact: Mapped["Artifact | None"] = relationship(lazy="raise", passive_deletes=True)


class JobEvent(Base):
    """Something that happened to a job; numbers of a job run 1, 2, 3, ... in order of commit."""

    __tablename__ = "job_events"

    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(Integer)
    type: Mapped[str] = mapped_column(String(CODE_LENGTH))
    payload: Mapped[dict[str, Any]]
    at: Mapped[datetime] = mapped_column(server_default=func.now())


class JobMetric(Base):
    """A measured figure; `number` is that of the event which brought it."""

    __tablename__ = "job_metrics"
    __table_args__ = (CheckConstraint("(value IS NULL) = (reason IS NOT NULL)", name="value_or_reason"),)

    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    attempt: Mapped[int] = mapped_column(Integer)
    name: Mapped[str] = mapped_column(String(128))
    value: Mapped[float | None]
    # Why there is no value, e.g. "infinite": JSON has no word for that.
    reason: Mapped[str | None] = mapped_column(String(CODE_LENGTH))
    detail: Mapped[dict[str, Any]]
    at: Mapped[datetime] = mapped_column(server_default=func.now())


class Artifact(Base):
    """The result of a job. This row is the commit point: objects without it do not count."""

    __tablename__ = "artifacts"
    __table_args__ = (
        CheckConstraint("total_bytes >= 0", name="total_bytes_not_negative"),
        Index("ix_artifacts_stored", "expires_at", postgresql_where=text("objects_deleted_at IS NULL")),
    )

    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer)
    prefix: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    total_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    objects_deleted_at: Mapped[datetime | None]


class OutboxMessage(Base):
    """A wake-up for the workers, written with the change that calls for it and sent afterwards.

    One row a job and topic: a later wake-up takes the place of the earlier one.
    """

    __tablename__ = "outbox"
    __table_args__ = (
        Index("ix_outbox_unsent", "available_at", postgresql_where=text("sent_at IS NULL")),
        UniqueConstraint("job_id", "topic"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    topic: Mapped[str] = mapped_column(String(CODE_LENGTH))
    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # Not to be sent earlier: a job tried again waits a while.
    available_at: Mapped[datetime] = mapped_column(server_default=func.now())
    sent_at: Mapped[datetime | None]
    sends: Mapped[int] = mapped_column(Integer, server_default=text("0"))


class IdempotencyKey(Base):
    """What a request with an `Idempotency-Key` was answered; written with what the request made."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        # Where authentication is off all requests share one scope, which the null stands for.
        UniqueConstraint("owner_id", "key", postgresql_nulls_not_distinct=True),
        Index("ix_idempotency_keys_expires_at", "expires_at"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    key: Mapped[str] = mapped_column(String(255))
    # SHA-256 of method, path and canonical body.
    request_digest: Mapped[str] = mapped_column(String(64))
    status: Mapped[int] = mapped_column(Integer)
    location: Mapped[str]
    # The answer to the letter: JSONB would reorder it.
    body: Mapped[str]
    expires_at: Mapped[datetime]


class Worker(Base):
    """A worker process, as it describes itself with each beat. It is live while its beats are recent.

    What it runs is said by the jobs: those in state running whose `worker` is its id.
    """

    __tablename__ = "workers"

    # host:pid:random, so that people recognise it and no two are ever the same.
    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int] = mapped_column(Integer)
    version: Mapped[str]
    # Kind, name and total memory of each device that its jobs may use.
    devices: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    memory_class: Mapped[str] = mapped_column(String(CODE_LENGTH))
    # Of the device that jobs run on; null where the machine does not tell.
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    free_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    free_disk_bytes: Mapped[int | None] = mapped_column(BigInteger)
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Tally(Base):
    """How often something has happened so far, and how many seconds it took; see `services.tallies`."""

    __tablename__ = "tallies"

    name: Mapped[str] = mapped_column(String(CODE_LENGTH), primary_key=True)
    label: Mapped[str] = mapped_column(String(CODE_LENGTH), primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float]


class Upload(Base):
    """A text that a user brought, to calibrate or evaluate on; its bytes lie in the object store."""

    __tablename__ = "uploads"
    __table_args__ = (
        CheckConstraint("size_bytes > 0", name="size_bytes_positive"),
        CheckConstraint("(completed_at IS NULL) = (sha256 IS NULL)", name="completed_has_sha256"),
        Index("ix_uploads_owner_id_id", "owner_id", "id"),
        Index("ix_uploads_expires_at", "expires_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("api_keys.id"))
    # The kind of file: txt or jsonl.
    format: Mapped[str] = mapped_column(String(16))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str | None] = mapped_column(String(64))
    documents: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    completed_at: Mapped[datetime | None]
    expires_at: Mapped[datetime]
