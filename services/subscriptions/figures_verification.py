"""Verifies the daily figures of lists, which ``daily_figures`` reads."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text

from storage.replica_reads import ReplicaFailed
from storage.resources import Resources

_MAX_DURATION = timedelta(hours=1)
_FIND_FAULTS = text("""
    SELECT list_id, source, type, CAST(sum(active) AS bigint), CAST(sum(counted) AS bigint)
    FROM (
        SELECT list_id, source, type, count(*) AS active, 0 AS counted
        FROM subscriptions WHERE status = 'active' GROUP BY list_id, source, type
        UNION ALL
        SELECT list_id, source, type, 0, joined - gone + moved_in - moved_out FROM member_days
        UNION ALL
        SELECT list_id, source, type, 0, joined - gone + moved_in - moved_out
        FROM member_day_deltas
    ) AS either
    GROUP BY list_id, source, type HAVING sum(active) <> sum(counted)
    ORDER BY list_id, source, type
    """)


@dataclass(frozen=True)
class FiguresFault:
    """A wrong figure (``counted``), which should be ``active`` according to ``subscriptions``."""

    list_id: int
    source: str
    tier: str
    active: int
    counted: int


def verify_figures(resources: Resources) -> list[FiguresFault]:
    """Compare the figures with the members in a single database snapshot."""
    failures = 0
    while True:
        try:
            with resources.replica_reads.view(_MAX_DURATION, failures=failures) as connection:
                return [FiguresFault(*row) for row in connection.execute(_FIND_FAULTS)]
        except ReplicaFailed:
            failures += 1
