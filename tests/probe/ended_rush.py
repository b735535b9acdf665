"""A rush of one owner's jobs that is over, while a snapshot keeps every version of their rows."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2

from tests.stack import Stack


@contextmanager
def open_snapshot(stack: Stack) -> Iterator[None]:
    """A transaction that sees the database as it is now, for as long as the block lasts."""
    with closing(psycopg2.connect(stack.owner_url)) as reader:
        reader.set_session(isolation_level="REPEATABLE READ")
        reader.cursor().execute("SELECT count(*) FROM lists")
        yield


def end_rush(stack: Stack, owner_id: int, jobs: int) -> None:
    """As if the owner's jobs had been queued, sent, claimed, renewed and ended, one by one."""
    for statement in (
        f"""
        INSERT INTO jobs (kind, queue, on_behalf_of, sends, send_after, created_at)
        SELECT 'probe.run', 'bulk', {owner_id}, 0, at, at
        FROM (
            SELECT now() - interval '1 hour' + i * interval '1 ms' AS at
            FROM generate_series(1, {jobs}) AS i
        ) AS times
        """,
        "UPDATE jobs SET sends = 1, send_after = send_after + interval '2 s'",
        "UPDATE jobs SET status = 'running', lease_expires_at = send_after",
        "UPDATE jobs SET lease_expires_at = lease_expires_at + interval '1 s'",
        "UPDATE jobs SET status = 'succeeded', lease_expires_at = NULL, finished_at = now()",
    ):
        stack.query(statement)
    # Now the planner takes the indexes of queued and of running jobs for empty.
    with closing(psycopg2.connect(stack.owner_url)) as session:
        session.autocommit = True
        session.cursor().execute("VACUUM ANALYZE jobs")
