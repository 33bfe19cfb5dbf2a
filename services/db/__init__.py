"""The database: tables, sessions, migrations. SQL statements live with the nouns they serve."""
