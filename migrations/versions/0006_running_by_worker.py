"""What a worker runs is found by its name."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Looking at workers does not read all running jobs."""
    op.create_index(
        "ix_jobs_running_worker", "jobs", ["worker"], postgresql_where=sa.text("state = 'running'")
    )


def downgrade() -> None:
    """All running jobs are read for it."""
    op.drop_index("ix_jobs_running_worker", "jobs")
