"""${message}"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Apply this revision."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Take this revision back."""
    ${downgrades if downgrades else "pass"}
