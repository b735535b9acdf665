"""Finds senders that don't report about large mailings."""

from datetime import timedelta

from services.jobs.maintenance import register_maintenance
from services.senders import states
from services.senders.notices import FailureReason
from storage.database import Statement
from storage.resources import Resources

MIN_MAILING_ROWS = 1_000
MAX_SILENCE = timedelta(hours=48)
# Older mailings don't matter, because their senders have been checked every hour since then.
_MAX_MAILING_AGE = timedelta(days=7)
# A sender that covers the list of a mailing is silent if no sender of the list has reported since
# the mailing. An owner may have two senders for all lists, and send a mailing with only one.
_FIND_SILENT_SENDERS = Statement("""
WITH large AS (
    SELECT m.list_id, m.created_at, l.user_id
    FROM mailings AS m JOIN lists AS l ON l.id = m.list_id
    WHERE m.created_at > now() - :max_age AND m.created_at < now() - :max_silence
        AND m.rows >= :min_rows
), covering AS (
    SELECT large.list_id, large.created_at AS mailing_at, s.id, s.state, s.created_at,
        s.last_report_at, s.deleted_at
    FROM large JOIN senders AS s ON s.user_id = large.user_id AND NOT s.any_list
        AND (s.list_ids IS NULL OR large.list_id = ANY (s.list_ids))
    UNION ALL
    SELECT large.list_id, large.created_at, s.id, s.state, s.created_at,
        s.last_report_at, s.deleted_at
    FROM large CROSS JOIN senders AS s WHERE s.any_list
), silent AS (
    SELECT list_id, mailing_at FROM covering GROUP BY list_id, mailing_at
    HAVING NOT coalesce(bool_or(last_report_at > mailing_at), false)
)
SELECT DISTINCT c.id FROM covering AS c JOIN silent USING (list_id, mailing_at)
WHERE c.deleted_at IS NULL AND c.state IN ('waiting', 'working') AND c.created_at < c.mailing_at
ORDER BY c.id
""")


def mark_silent_senders(resources: Resources) -> int:
    """Make senders fail that haven't reported since a large mailing. Return their number."""
    rows = resources.database.rows(
        _FIND_SILENT_SENDERS,
        max_age=_MAX_MAILING_AGE,
        max_silence=MAX_SILENCE,
        min_rows=MIN_MAILING_ROWS,
    )
    for (sender_id,) in rows:
        with resources.unit_of_work() as uow:
            states.mark_failing(uow, sender_id, FailureReason.NO_REPORTS)
    return len(rows)


CHECK_SILENCE = register_maintenance(
    "senders.silence",
    every=timedelta(hours=1),
    run=lambda resources, _: mark_silent_senders(resources),
)
