"""Scopes and expiry of keys, Hub tokens and trace contexts of jobs, uploads, tallies."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
KEY_COLUMNS = ("scopes", "expires_at", "last_used_at")
WIPED = "ck_jobs_ended_has_no_token"


def upgrade() -> None:
    """Keys are limited, jobs may hold a token while they are active, uploads exist."""
    _extend_api_keys()
    _extend_jobs()
    _create_uploads()
    _create_tallies()


def downgrade() -> None:
    """Keys, jobs and tables are as before; tokens and uploads are lost."""
    for table in ("tallies", "uploads"):
        op.drop_table(table)
    op.drop_constraint(WIPED, "jobs", type_="check")
    for column in ("hub_token", "traceparent"):
        op.drop_column("jobs", column)
    for column in KEY_COLUMNS:
        op.drop_column("api_keys", column)


def _extend_api_keys() -> None:
    scopes: sa.Column[list[str]] = sa.Column(
        "scopes",
        sa.ARRAY(sa.String(length=16)),
        server_default=sa.text("'{read,submit}'"),
        nullable=False,
    )
    for column in (scopes, sa.Column("expires_at", TIME), sa.Column("last_used_at", TIME)):
        op.add_column("api_keys", column)


def _extend_jobs() -> None:
    op.add_column("jobs", sa.Column("hub_token", sa.Text()))
    op.add_column("jobs", sa.Column("traceparent", sa.String(length=55)))
    op.create_check_constraint(WIPED, "jobs", "hub_token IS NULL OR state IN ('queued', 'running')")


def _create_uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid()),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64)),
        sa.Column("documents", sa.Integer()),
        sa.Column("created_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("completed_at", TIME),
        sa.Column("expires_at", TIME, nullable=False),
        sa.CheckConstraint("size_bytes > 0", name="ck_uploads_size_bytes_positive"),
        sa.CheckConstraint(
            "(completed_at IS NULL) = (sha256 IS NULL)", name="ck_uploads_completed_has_sha256"
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["api_keys.id"], name="fk_uploads_owner_id_api_keys"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
    )
    op.create_index("ix_uploads_owner_id_id", "uploads", ["owner_id", "id"])
    op.create_index("ix_uploads_expires_at", "uploads", ["expires_at"])


def _create_tallies() -> None:
    op.create_table(
        "tallies",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=64), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "label", name="pk_tallies"),
    )
