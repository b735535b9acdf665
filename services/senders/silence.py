"""Finds senders that have posted no report since a large mailing.

The provider's webhook probably doesn't work then, so Pressroom asks the sender's owner to check it.
"""

from datetime import timedelta

from services.jobs.maintenance import register_maintenance
from services.senders import states
from services.senders.notices import FailureReason
from storage.database import Statement
from storage.resources import Resources

MIN_MAILING_ROWS = 1_000
MAX_SILENCE = timedelta(hours=48)
# Each hourly search for silent senders checks only mailings up to this age. Earlier searches have
# already checked older mailings.
_MAX_MAILING_AGE = timedelta(days=7)
# Finds large mailings without a reported delivery, bounce, complaint or unsubscription. Returns the
# senders that cover the lists of these mailings. An owner with several senders may use only one of
# them for a mailing. The query skips a mailing if any of the owner's senders for the list has
# posted a report since the mailing began. When the query decides whether to skip a mailing, it
# ignores senders that cover the lists of all owners, because the reports of these senders may be
# about other lists.
_FIND_SILENT_SENDERS = Statement("""
WITH large AS (
    SELECT m.id, m.list_id, m.created_at, l.user_id
    FROM mailings AS m JOIN lists AS l ON l.id = m.list_id
    WHERE m.created_at > now() - :max_age AND m.created_at < now() - :max_silence
        AND m.rows >= :min_rows AND m.delivered + m.hard_bounced + m.soft_bounced + m.blocked
            + m.complained + m.unsubscribed = 0
), own AS (
    SELECT large.id AS mailing_id, large.created_at AS mailing_at, s.*
    FROM large JOIN senders AS s ON s.user_id = large.user_id AND NOT s.any_list
        AND (s.list_ids IS NULL OR large.list_id = ANY (s.list_ids))
), silent AS (
    SELECT id, created_at FROM large WHERE NOT EXISTS (
        SELECT FROM own WHERE own.mailing_id = large.id AND own.last_report_at > own.mailing_at
    )
), covering AS (
    SELECT own.id, own.state, own.created_at, own.mailing_at, own.deleted_at
    FROM own JOIN silent ON silent.id = own.mailing_id
    UNION ALL
    SELECT s.id, s.state, s.created_at, silent.created_at, s.deleted_at
    FROM silent JOIN senders AS s ON s.any_list
        AND (s.last_report_at IS NULL OR s.last_report_at < silent.created_at)
)
SELECT DISTINCT id FROM covering
WHERE deleted_at IS NULL AND state IN ('waiting', 'working') AND created_at < mailing_at
ORDER BY id
""")


def mark_silent_senders(resources: Resources) -> int:
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
