"""Simulates an owner with many ended jobs whose old row versions Postgres can't remove."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2

from devstack.harness.stack import Stack


@contextmanager
def open_snapshot(stack: Stack) -> Iterator[None]:
    """Keep a transaction open during the block, so that Postgres can't remove old row versions."""
    with closing(psycopg2.connect(stack.owner_url)) as reader:
        reader.set_session(isolation_level="REPEATABLE READ")
        reader.cursor().execute("SELECT count(*) FROM lists")
        yield


def add_ended_jobs(stack: Stack, owner_id: int, jobs: int, *, kind: str) -> None:
    """Insert jobs, and update each row as if the job had been queued, claimed and ended."""
    stack.query(
        "INSERT INTO jobs (kind, queue, on_behalf_of, sends, send_after, created_at)"
        " SELECT %s, 'bulk', %s, 0, at, at FROM ("
        " SELECT now() - interval '1 hour' + i * interval '1 ms' AS at"
        " FROM generate_series(1, %s) AS i) AS times",
        kind,
        owner_id,
        jobs,
    )
    for statement in (
        "UPDATE jobs SET sends = 1, send_after = send_after + interval '2 s'",
        "UPDATE jobs SET status = 'running', lease_expires_at = send_after",
        "UPDATE jobs SET lease_expires_at = lease_expires_at + interval '1 s'",
        "UPDATE jobs SET status = 'succeeded', lease_expires_at = NULL, finished_at = now()",
    ):
        stack.query(statement)
    # Update the table statistics, so that the query planner doesn't expect queued or running jobs.
    with closing(psycopg2.connect(stack.owner_url)) as session:
        session.autocommit = True
        session.cursor().execute("VACUUM ANALYZE jobs")
