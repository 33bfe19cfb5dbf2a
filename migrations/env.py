"""How Alembic runs our migrations: on the connection it is given, failing fast on locks."""

from alembic import context
from sqlalchemy import Connection, text

from services.db.models import Base

# A migration that waits for a lock makes every later query on that table wait behind it.
LOCK_TIMEOUT = "5s"
STATEMENT_TIMEOUT = "120s"


def run(connection: Connection) -> None:
    """Bring the database of `connection` to the wanted revision, one transaction a revision."""
    # A session setting made in a transaction holds only if that transaction commits.
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'"))
    connection.commit()
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        transaction_per_migration=True,
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
