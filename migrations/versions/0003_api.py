"""Idempotency keys; jobs found by model and label; when a stage began; which job was cloned."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
MODEL = "coalesce(spec #>> '{model,id}', spec #>> '{model,alias}')"


def upgrade() -> None:
    """The API can keep its promises of idempotency and find jobs by every filter."""
    op.add_column("jobs", sa.Column("model", sa.Text()))
    op.add_column("jobs", sa.Column("retry_of", sa.Uuid()))
    op.add_column("jobs", sa.Column("stage_started_at", TIME))
    op.execute(f"UPDATE jobs SET model = {MODEL}")  # noqa: S608 - a constant of ours
    op.create_foreign_key("fk_jobs_retry_of_jobs", "jobs", "jobs", ["retry_of"], ["id"], ondelete="SET NULL")
    _create_job_indexes()
    _create_idempotency_keys()


def downgrade() -> None:
    """As before; the keys are forgotten."""
    op.drop_table("idempotency_keys")
    for index in ("owner_id_state_id", "owner_id_model_id", "labels", "retry_of"):
        op.drop_index(f"ix_jobs_{index}", "jobs")
    op.drop_constraint("fk_jobs_retry_of_jobs", "jobs")
    for column in ("stage_started_at", "retry_of", "model"):
        op.drop_column("jobs", column)


def _create_job_indexes() -> None:
    op.create_index("ix_jobs_owner_id_state_id", "jobs", ["owner_id", "state", "id"])
    op.create_index("ix_jobs_owner_id_model_id", "jobs", ["owner_id", "model", "id"])
    op.create_index(
        "ix_jobs_labels",
        "jobs",
        ["labels"],
        postgresql_using="gin",
        postgresql_ops={"labels": "jsonb_path_ops"},
        postgresql_where=sa.text("labels <> '{}'::jsonb"),
    )
    op.create_index(
        "ix_jobs_retry_of", "jobs", ["retry_of"], postgresql_where=sa.text("retry_of IS NOT NULL")
    )


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("owner_id", sa.Uuid()),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id"],
            ["api_keys.id"],
            name="fk_idempotency_keys_owner_id_api_keys",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_idempotency_keys"),
        sa.UniqueConstraint(
            "owner_id", "key", name="uq_idempotency_keys_owner_id_key", postgresql_nulls_not_distinct=True
        ),
    )
    op.create_index("ix_idempotency_keys_expires_at", "idempotency_keys", ["expires_at"])
