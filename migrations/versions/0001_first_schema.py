"""Jobs, their events, metrics and artifacts, the outbox and the keys."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSONB = postgresql.JSONB(astext_type=sa.Text())
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """All tables exist."""
    _create_api_keys()
    _create_jobs()
    _create_artifacts()
    _create_job_events()
    _create_job_metrics()
    _create_outbox()
    _create_indexes()


def downgrade() -> None:
    """No table is left."""
    for table in ("outbox", "job_metrics", "job_events", "artifacts", "jobs", "api_keys"):
        op.drop_table(table)


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("revoked_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("prefix", name="uq_api_keys_prefix"),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid()),
        sa.Column("spec", JSONB, nullable=False),
        sa.Column("spec_digest", sa.String(length=64), nullable=False),
        sa.Column("labels", JSONB, server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("deadline_seconds", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_token", sa.Uuid()),
        sa.Column("lease_expires_at", TIME),
        sa.Column("worker", sa.Text()),
        sa.Column("cancel_requested_at", TIME),
        sa.Column("stage", sa.String(length=64)),
        sa.Column("stage_done", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("stage_total", sa.BigInteger()),
        sa.Column("stage_unit", sa.String(length=32)),
        sa.Column("last_seen_at", TIME),
        sa.Column("failure", JSONB),
        sa.Column("event_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("objects_swept_at", TIME),
        sa.CheckConstraint("(state = 'failed') = (failure IS NOT NULL)", name="ck_jobs_failed_has_failure"),
        sa.CheckConstraint(
            "(state = 'running') = (lease_token IS NOT NULL)", name="ck_jobs_running_has_lease"
        ),
        sa.CheckConstraint(
            "(state IN ('queued', 'running')) = (finished_at IS NULL)", name="ck_jobs_ended_has_finished_at"
        ),
        sa.CheckConstraint(
            "state IN ('cancelled', 'failed', 'queued', 'running', 'succeeded')", name="ck_jobs_state_known"
        ),
        sa.CheckConstraint("(lease_token IS NULL) = (lease_expires_at IS NULL)", name="ck_jobs_lease_whole"),
        sa.ForeignKeyConstraint(["owner_id"], ["api_keys.id"], name="fk_jobs_owner_id_api_keys"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )


def _create_artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("manifest", JSONB, nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("objects_deleted_at", TIME),
        sa.CheckConstraint("total_bytes >= 0", name="ck_artifacts_total_bytes_not_negative"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifacts_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_artifacts"),
    )


def _create_job_events() -> None:
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("payload", JSONB, nullable=False),
        sa.Column("at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_job_events_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_job_events"),
    )


def _create_job_metrics() -> None:
    op.create_table(
        "job_metrics",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("reason", sa.String(length=64)),
        sa.Column("detail", JSONB, nullable=False),
        sa.Column("at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(value IS NULL) = (reason IS NOT NULL)", name="ck_job_metrics_value_or_reason"),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_job_metrics_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_job_metrics"),
    )


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("available_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("sent_at", TIME),
        sa.Column("sends", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_outbox_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        sa.UniqueConstraint("job_id", "topic", name="uq_outbox_job_id_topic"),
    )


def _create_indexes() -> None:
    op.create_index("ix_jobs_owner_id_id", "jobs", ["owner_id", "id"])
    op.create_index("ix_jobs_queued", "jobs", ["id"], postgresql_where=sa.text("state = 'queued'"))
    op.create_index(
        "ix_jobs_running_lease", "jobs", ["lease_expires_at"], postgresql_where=sa.text("state = 'running'")
    )
    op.create_index(
        "ix_jobs_unswept",
        "jobs",
        ["finished_at"],
        postgresql_where=sa.text("finished_at IS NOT NULL AND objects_swept_at IS NULL"),
    )
    op.create_index(
        "ix_artifacts_stored",
        "artifacts",
        ["expires_at"],
        postgresql_where=sa.text("objects_deleted_at IS NULL"),
    )
    op.create_index(
        "ix_outbox_unsent", "outbox", ["available_at"], postgresql_where=sa.text("sent_at IS NULL")
    )
