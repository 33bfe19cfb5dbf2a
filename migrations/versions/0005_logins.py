"""Logins of the dashboard."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """People can log in with their keys."""
    op.create_table(
        "logins",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name="fk_logins_key_id_api_keys", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name="pk_logins"),
    )
    op.create_index("ix_logins_expires_at", "logins", ["expires_at"])
    op.create_index("ix_jobs_failed", "jobs", ["finished_at"], postgresql_where=sa.text("state = 'failed'"))


def downgrade() -> None:
    """Everyone is logged out."""
    op.drop_index("ix_jobs_failed", "jobs")
    op.drop_table("logins")
