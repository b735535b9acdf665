"""The pages of an account's ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from core import ids
from core.errors.requests import REQUEST_INVALID
from models import CreditAction
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.database import Database, Statement

MAX_ENTRIES_LOOKED_AT = 5_000


@dataclass(frozen=True)
class LedgerFilter:
    """
    Attributes:
        actions: entries of any of these; empty: of all.
        first: the first day (UTC); ``None``: that of the oldest entry.
        last: the last day; ``None``: that of the newest entry.
    """

    actions: Sequence[CreditAction] = ()
    first: date | None = None
    last: date | None = None


_EVERYTHING = LedgerFilter()


def page(
    database: Database, user_id: int, wanted: PageRequest, only: LedgerFilter = _EVERYTHING
) -> PageOfRows[tuple[int, str]]:
    """Return entries, each its number and its JSON text, newest first; raises ``cursor.invalid``.

    Entries are numbered without gaps, so an offset gives a number, which an index finds: old pages
    cost as much as new ones. With a filter only a cursor says where to go on; an offset raises
    ``request.invalid``.
    """
    if only.actions or only.first is not None or only.last is not None:
        return _find(database, user_id, wanted, only)
    before = None if wanted.cursor is None else ids.of_cursor(wanted.cursor)
    rows = database.rows(
        PAGE, user_id=user_id, offset=wanted.offset, limit=wanted.limit + 1, before=before
    )
    entries = [(int(seq), str(entry)) for seq, entry in rows]
    return paging.cut(entries, wanted.limit, lambda entry: str(entry[0]))


def _find(
    database: Database, user_id: int, wanted: PageRequest, only: LedgerFilter
) -> PageOfRows[tuple[int, str]]:
    """As ``page``, with a filter and by a cursor alone."""
    if wanted.offset:
        raise REQUEST_INVALID(place="query.offset", rule="a filter goes on by the cursor alone")
    highest = _last_before(database, user_id, only.last, days=1)
    if wanted.cursor is not None:
        highest = min(highest, ids.of_cursor(wanted.cursor) - 1)
    lowest = 0 if only.first is None else _last_before(database, user_id, only.first, days=0)
    look_after = max(lowest, highest - MAX_ENTRIES_LOOKED_AT)
    actions = [str(action) for action in only.actions or CreditAction]
    bounds = {"after": look_after, "highest": highest, "limit": wanted.limit + 1}
    rows = database.rows(_LOOK, user_id=user_id, actions=actions, **bounds)
    entries = [(int(seq), str(entry)) for seq, entry in rows]
    shown, next_cursor = entries[: wanted.limit], None
    if len(entries) > wanted.limit:
        next_cursor = str(shown[-1][0])
    elif look_after > lowest:
        next_cursor = str(look_after + 1)
    return PageOfRows(shown, next_cursor, lambda entry: str(entry[0]))


def _last_before(database: Database, user_id: int, day: date | None, *, days: int) -> int:
    """The last entry before a day and ``days``, or the newest; 0: there is none."""
    if day is None:
        found = database.rows(_NEWEST, user_id=user_id)
    else:
        found = database.rows(_LAST_BEFORE, user_id=user_id, day=day, days=days)
    return int(found[0][0]) if found else 0


_NEWEST = Statement("SELECT last_seq FROM credit_accounts WHERE user_id = :user_id")
# Each step looks at one entry. Dates are compared at midnight UTC, the sessions' time zone.
_LAST_BEFORE = Statement("""
WITH RECURSIVE halves (low, high) AS (
    SELECT CAST(0 AS bigint), CAST(last_seq AS bigint) FROM credit_accounts
    WHERE user_id = :user_id
    UNION ALL
    SELECT CASE WHEN middle.is_before THEN middle.seq ELSE low END,
        CASE WHEN middle.is_before THEN high ELSE middle.seq - 1 END
    FROM halves CROSS JOIN LATERAL (
        SELECT CAST(e.seq AS bigint) AS seq,
            e.created_at < CAST(:day AS date) + CAST(:days AS integer) AS is_before
        FROM credit_entries AS e
        WHERE e.user_id = :user_id AND e.seq = (low + high + 1) / 2
        LIMIT 1
    ) AS middle
    WHERE low < high
)
SELECT low FROM halves WHERE low = high
""")
_LOOK = Statement("""
SELECT e.seq, credit_entry_json(e)::text
FROM credit_entries AS e
WHERE e.user_id = :user_id AND e.seq > :after AND e.seq <= :highest
    AND e.action = ANY(CAST(:actions AS text[]))
ORDER BY e.seq DESC LIMIT :limit
""")
PAGE = Statement("""
SELECT e.seq, credit_entry_json(e)::text
FROM credit_entries AS e
WHERE e.user_id = :user_id AND e.seq <= coalesce(CAST(:before AS bigint) - 1, (
    SELECT last_seq FROM credit_accounts WHERE user_id = :user_id) - :offset)
ORDER BY e.seq DESC LIMIT :limit
""")
