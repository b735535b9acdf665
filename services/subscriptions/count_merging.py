"""Merges the changes that database triggers store into subscriber counts and daily statistics.

Merging keeps queries fast. Queries add the changes that aren't merged yet.
"""

from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import TextClause, text

from services.jobs.maintenance import register_maintenance
from services.subscriptions.quota_notices import notify_owners
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

register_maintenance(
    "maintenance.fold_counts",
    every=timedelta(seconds=30),
    run=lambda resources, _: merge_everything(resources),
)
_MAX_BATCH_CHANGES = 10_000


class Merge(NamedTuple):
    """A table of changes, whose ``amounts`` are added to ``totals`` with the same ``keys``."""

    changes: str
    totals: str
    keys: tuple[str, ...]
    amounts: tuple[str, ...]

    def build_statement(self) -> TextClause:
        keys = ", ".join(self.keys)
        # The array of ids makes Postgres look up rows by primary key. A join could be slow, because
        # Postgres has wrong statistics about the usually empty table.
        return text(f"""
            WITH taken AS (
                DELETE FROM {self.changes} WHERE id = ANY (ARRAY(
                    SELECT id FROM {self.changes}
                    ORDER BY id LIMIT :max_changes FOR UPDATE SKIP LOCKED
                ))
                RETURNING {keys}, {", ".join(self.amounts)}
            ), merged AS (
                INSERT INTO {self.totals} AS t ({keys}, {", ".join(self.amounts)})
                SELECT {keys}, {", ".join(f"sum({each})" for each in self.amounts)}
                FROM taken GROUP BY {keys} ORDER BY {keys}
                ON CONFLICT ({keys}) DO UPDATE
                SET {", ".join(f"{each} = t.{each} + excluded.{each}" for each in self.amounts)}
            )
            SELECT list_id, count(*) AS change_count, sum({self.amounts[0]}) AS growth
            FROM taken GROUP BY list_id
        """)  # noqa: S608 - no input


SUBSCRIBERS = Merge("subscriber_deltas", "subscriber_counts", ("list_id",), ("active",))
MEMBER_DAYS = Merge(
    "member_day_deltas",
    "member_days",
    ("list_id", "day", "source", "type"),
    ("joined", "gone", "moved_in", "moved_out"),
)
ORIGIN_DAYS = Merge(
    "origin_day_deltas",
    "origin_days",
    ("list_id", "day", "utm_source", "utm_medium", "utm_campaign", "referrer"),
    ("joined", "gone", "imported"),
)
LANDING_DAYS = Merge(
    "landing_day_deltas",
    "landing_days",
    ("list_id", "day", "landing"),
    ("joined", "gone", "imported"),
)


def merge_everything(resources: Resources) -> int:
    """Merge all changes, one batch per transaction, and return their number."""
    total = 0
    for merge in (SUBSCRIBERS, MEMBER_DAYS, ORIGIN_DAYS, LANDING_DAYS):
        merged_count = _MAX_BATCH_CHANGES
        while merged_count == _MAX_BATCH_CHANGES:
            with resources.unit_of_work() as uow:
                merged_count = merge_batch(uow, merge, max_changes=_MAX_BATCH_CHANGES)
            total += merged_count
    return total


def merge_batch(uow: UnitOfWork, merge: Merge, *, max_changes: int) -> int:
    """Merge the oldest changes.

    Owners above their quota get their notice in the same transaction, so that a crash can't lose
    it.
    """
    rows = uow.session.execute(merge.build_statement(), {"max_changes": max_changes}).all()
    if merge is SUBSCRIBERS:
        notify_owners(uow, [row.list_id for row in rows if row.growth > 0])
    return sum(row.change_count for row in rows)
