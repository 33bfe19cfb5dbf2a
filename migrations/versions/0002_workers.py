"""Workers, and what jobs need of them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSONB = postgresql.JSONB(astext_type=sa.Text())
TIME = sa.DateTime(timezone=True)
NEEDS = ("needs_memory_bytes", "needs_disk_bytes")


def upgrade() -> None:
    """Workers have a table; jobs may say what they need."""
    for name in NEEDS:
        op.add_column("jobs", sa.Column(name, sa.BigInteger()))
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("devices", JSONB, nullable=False),
        sa.Column("memory_class", sa.String(length=64), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger()),
        sa.Column("free_memory_bytes", sa.BigInteger()),
        sa.Column("free_disk_bytes", sa.BigInteger()),
        sa.Column("started_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.Column("last_seen_at", TIME, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )


def downgrade() -> None:
    """As in 0001."""
    op.drop_table("workers")
    for name in NEEDS:
        op.drop_column("jobs", name)
