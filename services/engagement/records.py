"""Records on which days members received, opened and clicked mailings.

A batch of reports and a refusal may concern the same member at the same time. Both write the
member's row in ``member_engagement``, so that the second waits for the first. If the refusal is the
second, it deletes the rows of the batch. If the batch is the second, ``add_events`` finds the
refusal.
"""

from collections.abc import Collection
from datetime import date
from enum import StrEnum
from typing import NamedTuple

import psycopg2.errors
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from core.ids import PersonId
from core.logging import get_logger
from services.engagement.measuring import find_measured, format_pairs
from storage.array_texts import format_numbers, format_texts
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)


class EngagementKind(StrEnum):
    """A kind of recorded events, which is also a kind of marks (``mailing_marks.kind``)."""

    DELIVERED = "delivered"
    OPENED = "opened"
    MACHINE_OPENED = "machine_opened"
    CLICKED = "clicked"


# Each event is the only one of its kind, member and mailing, so the counts are numbers of mailings.
_ADD = text("""
INSERT INTO member_engagement AS e (list_id, user_id, measured_since, delivered, opens,
    machine_opens, clicks, last_delivered, last_opened, last_machine_opened, last_clicked)
SELECT list_id, user_id, min(day),
    count(*) FILTER (WHERE kind = 'delivered'), count(*) FILTER (WHERE kind = 'opened'),
    count(*) FILTER (WHERE kind = 'machine_opened'), count(*) FILTER (WHERE kind = 'clicked'),
    max(day) FILTER (WHERE kind = 'delivered'), max(day) FILTER (WHERE kind = 'opened'),
    max(day) FILTER (WHERE kind = 'machine_opened'), max(day) FILTER (WHERE kind = 'clicked')
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]), CAST(:kinds AS text[]),
    CAST(:days AS date[])) AS r (list_id, user_id, kind, day)
GROUP BY list_id, user_id ORDER BY list_id, user_id
ON CONFLICT (list_id, user_id) DO UPDATE SET
    measured_since = least(e.measured_since, excluded.measured_since),
    delivered = e.delivered + excluded.delivered, opens = e.opens + excluded.opens,
    machine_opens = e.machine_opens + excluded.machine_opens, clicks = e.clicks + excluded.clicks,
    last_delivered = greatest(e.last_delivered, excluded.last_delivered),
    last_opened = greatest(e.last_opened, excluded.last_opened),
    last_machine_opened = greatest(e.last_machine_opened, excluded.last_machine_opened),
    last_clicked = greatest(e.last_clicked, excluded.last_clicked)
""")
# Waits for a concurrent batch of reports, even if the batch has just inserted the row.
_LOCK = text("""
SET LOCAL lock_timeout = '1s';
INSERT INTO member_engagement AS e (list_id, user_id, measured_since)
VALUES (:list_id, :user_id, CURRENT_DATE)
ON CONFLICT (list_id, user_id) DO UPDATE SET delivered = e.delivered
""")
_OF_PAIRS = """
USING unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[])) AS r (list_id, user_id)
WHERE e.list_id = r.list_id AND e.user_id = r.user_id
"""
_DELETE = text(f"DELETE FROM member_engagement AS e {_OF_PAIRS}")  # noqa: S608 - no input
_DELETE_MARKS = text(f"""
DELETE FROM mailing_marks AS e {_OF_PAIRS} AND e.kind IN ('opened', 'machine_opened', 'clicked')
""")  # noqa: S608 - no input
# A person has engagement only on lists with a subscription.
_DELETE_OF_PERSON = text("""
DELETE FROM member_engagement AS e USING subscriptions AS m
WHERE m.user_id = :user_id AND e.list_id = m.list_id AND e.user_id = m.user_id
RETURNING 1
""")


class EngagementEvent(NamedTuple):
    """The first event of its kind that a member's mail of a mailing caused.

    ``day``: the day of the event in UTC.
    """

    list_id: int
    user_id: PersonId
    kind: EngagementKind
    day: date


def add_events(uow: UnitOfWork, events: Collection[EngagementEvent]) -> None:
    """Record events, but not for members who are no longer measured."""
    if not events:
        return
    values = {
        "list_ids": format_numbers(event.list_id for event in events),
        "user_ids": format_numbers(event.user_id for event in events),
        "kinds": format_texts(event.kind for event in events),
        "days": format_texts(event.day.isoformat() for event in events),
    }
    uow.session.execute(_ADD, values)
    # A member may have refused since the caller checked.
    pairs = {(event.list_id, event.user_id) for event in events}
    delete_records(uow, pairs - find_measured(uow, pairs))


def delete_records(uow: UnitOfWork, pairs: Collection[tuple[int, int]]) -> None:
    """Delete the counts and marks of members, given as pairs of a list id and a user id."""
    if pairs:
        values = format_pairs(pairs)
        uow.session.execute(_DELETE, values)
        uow.session.execute(_DELETE_MARKS, values)


def delete_record(uow: UnitOfWork, list_id: int, person_id: PersonId) -> None:
    """Delete the counts and marks of a member who has refused.

    If a batch of reports takes longer than a second, leave the deletion to the batch or to
    maintenance, so that the refusal isn't delayed. Until then, the refusal hides the counts.
    """
    try:
        with uow.session.begin_nested():
            uow.session.execute(_LOCK, {"list_id": list_id, "user_id": person_id})
            delete_records(uow, {(list_id, person_id)})
    except OperationalError as error:
        if not isinstance(error.orig, psycopg2.errors.LockNotAvailable):
            raise
        log.info("engagement.deletion_postponed", list_id=list_id)


def delete_person(uow: UnitOfWork, person_id: PersonId) -> int:
    """Delete a person's counts on all lists, and return the number of lists."""
    return len(uow.session.execute(_DELETE_OF_PERSON, {"user_id": person_id}).all())
