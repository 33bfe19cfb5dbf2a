"""A table full of jobs, made by one statement a table."""

import json

from sqlalchemy import text

from services.db.sessions import Database
from services.jobs.failures import Failure

FAILURE = json.dumps(Failure("unsafe_model", "pickles", "Use others.", "load", attempt=1).to_json())

# Of each 1000 jobs of an owner: 979 succeeded, 10 failed, 5 cancelled, 4 queued, 2 running. One a
# second, the newest now. Ids are of version 7, as the service makes them. `owner_id` is one key's.
JOBS = """
INSERT INTO jobs (id, owner_id, spec, spec_digest, model, labels, deadline_seconds, state, lease_token,
    lease_expires_at, worker, failure, event_count, created_at, finished_at, objects_swept_at)
SELECT
    (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3)
        || '8' || substr(md5(n::text), 4, 15))::uuid,
    :owner_id, '{"model": {"kind": "hub", "id": "owner/tiny"}}'::jsonb, md5(n::text),
    CASE WHEN n % 100 = 0 THEN 'owner/rare' ELSE 'owner/tiny' END,
    CASE n % 200 WHEN 0 THEN '{"team": "rare"}'::jsonb WHEN 1 THEN '{"team": "common"}'::jsonb ELSE '{}' END,
    3600, state,
    CASE WHEN state = 'running' THEN gen_random_uuid() END,
    CASE WHEN state = 'running' THEN now() + interval '1 hour' END,
    CASE WHEN state = 'running' THEN 'worker-' || n END,
    CASE WHEN state = 'failed' THEN CAST(:failure AS jsonb) END,
    1, at,
    CASE WHEN state NOT IN ('queued', 'running') THEN at END,
    CASE WHEN state NOT IN ('queued', 'running') THEN at END
FROM (
    SELECT n, now() - (:count - n) * interval '1 second' AS at,
        CASE WHEN n % 1000 < 979 THEN 'succeeded' WHEN n % 1000 < 989 THEN 'failed'
             WHEN n % 1000 < 994 THEN 'cancelled' WHEN n % 1000 < 998 THEN 'queued'
             ELSE 'running' END AS state
    FROM generate_series(1, :count) AS n
) AS numbered
"""
EVENTS = """
INSERT INTO job_events (job_id, number, attempt, type, payload)
SELECT id, 1, 0, 'submitted', '{}' FROM jobs ON CONFLICT DO NOTHING
"""
# However many jobs there are, few workers are live.
WORKERS = """
INSERT INTO workers (id, host, pid, version, devices, memory_class, last_seen_at)
SELECT worker, 'host', 1, '1', '[]', 'large', now() + interval '1 hour'
FROM jobs WHERE state = 'running' ORDER BY id DESC LIMIT 2
"""


def fill(database: Database, owner_id: object, count: int) -> None:
    """`count` jobs of one owner, with an event each, and two workers; the planner knows of them."""
    with database.write() as session:
        session.execute(text("SET LOCAL statement_timeout = '10min'"))
        session.execute(text(JOBS), {"owner_id": owner_id, "count": count, "failure": FAILURE})
        session.execute(text(EVENTS))
        session.execute(text(WORKERS))
    # Outside of any transaction, as the autovacuum of a busy server would.
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SET statement_timeout = '10min'"))
        connection.execute(text("VACUUM ANALYZE jobs"))
        connection.execute(text("VACUUM ANALYZE job_events"))
