"""Finds and writes the differences between a segment's filter and its recorded members.

A statement compares members in a range of subscription ids. A difference is due, unless the member
already had an event of the same type on the segment's day. A difference that isn't due yet remains,
and is found again on the next day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, Boolean, any_, bindparam, column, select, text

from core.ids import MAX_ID, AccountId
from models import Subscription, SubscriptionStatus
from services.subscriptions.filters.conditions import Condition
from storage.unit_of_work import UnitOfWork

_SUBSCRIPTIONS = Subscription.__table__.c
_IN_RANGE = "subscription_id > :after AND subscription_id <= :upto"
_IN_IDS = "subscription_id = ANY (CAST(:ids AS bigint[]))"
_RANGE_END_OF_RECORDS = """(
    SELECT subscription_id FROM segment_members
    WHERE watch_id = :watch_id AND subscription_id > :after
    ORDER BY subscription_id OFFSET :most LIMIT 1
)"""
_RANGE_END_OF_STATUS = """(
    SELECT id FROM subscriptions
    WHERE list_id = ANY (ARRAY[CAST(:list_id AS bigint)]) AND status = '{}' AND id > :after
    ORDER BY list_id, id OFFSET :most LIMIT 1
)"""
# The condition that an import, `members/add` or the undo of an import changed the member since the
# previous comparison.
_IS_IMPORTED = """(coalesce(s.imported_at >= :seen_at, false) OR EXISTS (
        SELECT FROM import_changes AS c
        WHERE c.subscription_id = s.id AND c.applied_at >= :seen_at
    ) OR EXISTS (
        SELECT FROM subscription_events AS e
        WHERE e.list_id = s.list_id AND e.user_id = s.user_id AND e.action = 'import_undone'
            AND e.created_at >= :seen_at
    ))"""
_FIND_DIFFERENCES = """
SELECT * FROM (
    SELECT coalesce(m.subscription_id, r.subscription_id) AS subscription_id,
        coalesce(m.user_id, r.user_id) AS user_id, m.subscription_id IS NOT NULL AS is_entry,
        r.place, r.entry,
        CASE WHEN m.subscription_id IS NULL THEN r.last_left_on ELSE r.last_entered_on END
            AS last_on,
        :is_silent OR :has_imports AND m.subscription_id IS NOT NULL AND (
            SELECT {is_imported} FROM subscriptions AS s WHERE s.id = m.subscription_id
        ) AS is_silent
    FROM matching AS m FULL JOIN (
        SELECT *, ctid AS place FROM segment_members
        WHERE watch_id = :watch_id AND {is_selected}
    ) AS r ON r.subscription_id = m.subscription_id
    WHERE (m.subscription_id IS NOT NULL) <> coalesce(r.is_in, false)
) AS d
WHERE d.is_silent OR coalesce(d.last_on < :day, true)
"""
# Locks the people against an erasure until the transaction ends. ``is_person`` is false for erased
# people. The statements below look up one row at a time (LATERAL, OFFSET 0) or by its place,
# because Postgres has no statistics about the differences and about a new watch. An entry that no
# smallint can store counts as the highest one.
_LOCK_PEOPLE = """
SELECT d.*, p.id IS NOT NULL AS is_person,
    least(coalesce(d.entry, 0) + CAST(d.is_entry AS int), 32767) AS number
FROM differences AS d LEFT JOIN LATERAL (
    SELECT id FROM users WHERE id = d.user_id AND erased_at IS NULL FOR KEY SHARE OFFSET 0
) AS p ON true
"""
_ENTER = """
INSERT INTO segment_members AS r
    (watch_id, subscription_id, user_id, entry, is_in, last_entered_on)
SELECT :watch_id, subscription_id, user_id, number, true, CASE WHEN NOT is_silent THEN :day END
FROM locked WHERE is_entry AND is_person ORDER BY subscription_id
ON CONFLICT (watch_id, subscription_id) DO UPDATE SET is_in = true, entry = excluded.entry,
    last_entered_on = coalesce(excluded.last_entered_on, r.last_entered_on)
"""
_LEAVE = """
UPDATE segment_members AS r SET is_in = false,
    last_left_on = CASE WHEN d.is_silent THEN r.last_left_on ELSE :day END
FROM locked AS d WHERE r.ctid = d.place AND NOT d.is_entry AND d.is_person
"""
_FORGET = """
DELETE FROM segment_members AS r USING locked AS d WHERE r.ctid = d.place AND NOT d.is_person
"""
_ADD_CHANGES = """
INSERT INTO segment_changes (watch_id, user_id, change, entry, day)
SELECT :watch_id, user_id, CASE WHEN is_entry THEN 'entered' ELSE 'left' END, number, :day
FROM locked WHERE is_person AND NOT is_silent ORDER BY subscription_id
"""
# A member whose subscription was deleted by the undo of an import counts as removed.
_ADD_EVENTS = """
INSERT INTO feed_events (user_id, type, list_id, subject_id, data)
SELECT :owner_id, CASE WHEN d.is_entry THEN 'segment.entered' ELSE 'segment.left' END, :list_id,
    s.id, jsonb_build_object(
        'segment_id', CAST(:segment_id AS bigint), 'user_id', d.user_id, 'entry', d.number,
        'day', CAST(:day AS date), 'status', coalesce(s.status, 'removed'),
        'email_enabled', coalesce(s.email_enabled, false))
FROM locked AS d LEFT JOIN LATERAL (
    SELECT id, status, email_enabled FROM subscriptions WHERE id = d.subscription_id OFFSET 0
) AS s ON true
WHERE :has_events AND d.is_person AND NOT d.is_silent ORDER BY d.subscription_id
"""
_COUNT_WRITES = """
SELECT count(*) FILTER (WHERE is_person AND NOT is_silent AND is_entry),
    count(*) FILTER (WHERE is_person AND NOT is_silent AND NOT is_entry),
    count(*) FILTER (WHERE is_person AND place IS NULL)
        - count(*) FILTER (WHERE NOT is_person AND place IS NOT NULL),
    count(*) FILTER (WHERE is_person AND is_entry) - count(*) FILTER (WHERE NOT is_entry)
FROM locked
"""


class Written(NamedTuple):
    """The numbers of written changes, and by how much the numbers of recorded members grew."""

    entered: int
    left: int
    recorded: int
    members: int


@dataclass(frozen=True)
class Difference:
    """The difference between the members who match a condition and the recorded members.

    Attributes:
        statuses: the statuses that matching members can have.
        is_silent: whether no change causes an event.
        seen_at: changes that imports made since this time cause no events, or ``None`` if imports
            cause events or made no change.
    """

    watch_id: int
    segment_id: int
    list_id: int
    owner_id: AccountId
    day: date
    condition: Condition
    statuses: tuple[SubscriptionStatus, ...]
    is_silent: bool
    seen_at: datetime | None

    def find_range_end(self, uow: UnitOfWork, after: int, max_rows: int) -> int:
        """Return the end of a range that contains at most ``max_rows`` members of each status."""
        # The order by ``list_id`` makes Postgres use the list's index, as in
        # ``paging.order_newest_first``.
        ends = [_RANGE_END_OF_RECORDS, *map(_RANGE_END_OF_STATUS.format, self.statuses)]
        query = text(f"SELECT least({', '.join(ends)})")
        values = {"watch_id": self.watch_id, "list_id": self.list_id}
        end = uow.session.scalar(query, {**values, "after": after, "most": max_rows - 1})
        return MAX_ID if end is None else int(end)

    def read_members(self, uow: UnitOfWork, after: int, upto: int) -> int:
        """Read the members in a range without the filter, and return their number."""
        # Selecting a column that no index contains makes Postgres read the rows.
        query = text(
            "SELECT count(*), count(updated_at) FROM subscriptions WHERE list_id = :list_id"
            " AND id > :after AND id <= :upto AND status = ANY (:statuses)"
        )
        values = {"list_id": self.list_id, "after": after, "upto": upto}
        statuses = [str(status) for status in self.statuses]
        count, _ = uow.session.execute(query, {**values, "statuses": statuses}).one()
        return int(count)

    def find_differences(
        self, uow: UnitOfWork, after: int, upto: int
    ) -> Sequence[tuple[int, bool]]:
        """Return the subscription ids of the due differences, and whether each is silent."""
        query = text("SELECT subscription_id, is_silent FROM differences").columns(
            column("subscription_id"), column("is_silent", Boolean)
        )
        query = query.add_cte(*self._build_difference_ctes(_IN_RANGE))
        rows = uow.session.execute(query, self._build_values(after=after, upto=upto))
        return [(int(subscription_id), is_silent) for subscription_id, is_silent in rows]

    def write_range(self, uow: UnitOfWork, after: int, upto: int, *, has_events: bool) -> Written:
        return self._write(uow, _IN_RANGE, has_events=has_events, after=after, upto=upto)

    def write_ids(self, uow: UnitOfWork, ids: Sequence[int]) -> Written:
        return self._write(uow, _IN_IDS, has_events=True, ids=list(ids))

    def _write(self, uow: UnitOfWork, is_selected: str, **values: object) -> Written:
        statements = (_ENTER, _LEAVE, _FORGET, _ADD_CHANGES, _ADD_EVENTS)
        parts = (
            *self._build_difference_ctes(is_selected),
            _build_cte("locked", _LOCK_PEOPLE),
            *(
                _build_cte(f"written_{number}", f"{statement} RETURNING 1")
                for number, statement in enumerate(statements)
            ),
        )
        names = ("entered", "left", "recorded", "members")
        query = text(_COUNT_WRITES).columns(*map(column, names)).add_cte(*parts)
        row = uow.session.execute(
            query,
            self._build_values(
                owner_id=self.owner_id,
                list_id=self.list_id,
                segment_id=self.segment_id,
                **values,
            ),
        ).one()
        return Written(*map(int, row))

    def _build_difference_ctes(self, is_selected: str) -> tuple[Any, ...]:
        members = select(_SUBSCRIPTIONS.id.label("subscription_id"), _SUBSCRIPTIONS.user_id).where(
            _SUBSCRIPTIONS.list_id == self.list_id, self.condition
        )
        if is_selected == _IN_RANGE:
            after = bindparam("after", type_=BigInteger)
            upto = bindparam("upto", type_=BigInteger)
            members = members.where(_SUBSCRIPTIONS.id > after, _SUBSCRIPTIONS.id <= upto)
        else:
            ids = bindparam("ids", type_=ARRAY(BigInteger))
            members = members.where(_SUBSCRIPTIONS.id == any_(ids))
        differences = _FIND_DIFFERENCES.format(is_selected=is_selected, is_imported=_IS_IMPORTED)
        return members.cte("matching"), _build_cte("differences", differences)

    def _build_values(self, **values: object) -> dict[str, object]:
        return {
            "watch_id": self.watch_id,
            "day": self.day,
            "is_silent": self.is_silent,
            "has_imports": self.seen_at is not None,
            "seen_at": self.seen_at,
            **values,
        }


def _build_cte(name: str, statement: str) -> Any:
    """Return a common table expression whose columns only other texts use."""
    return text(statement).columns().cte(name)
