"""Looks for entries of some actions, or of some days, in an account however long it is.

An account's entries are numbered without gaps in the order in which they were written. So days are
found by halving, and a look is at a bounded range of numbers: a page may hold fewer entries than it
was asked for, or none, and say where the next look begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from core import ids
from core.refusals.requests import REQUEST_INVALID
from models import CreditAction
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

    @property
    def takes_all(self) -> bool:
        return not self.actions and self.first is None and self.last is None


def find(
    database: Database, user_id: int, wanted: PageRequest, only: LedgerFilter
) -> PageOfRows[tuple[int, str]]:
    """The entries that the filter takes, as ``ledger.page`` gives them; by a cursor alone.

    Raises ``cursor.invalid`` and ``request.invalid``.
    """
    if wanted.offset:
        raise REQUEST_INVALID(place="query.offset", rule="a filter goes on by the cursor alone")
    highest = _last_before(database, user_id, only.last, days=1)
    if wanted.cursor is not None:
        highest = min(highest, ids.of_cursor(wanted.cursor) - 1)
    lowest = 0 if only.first is None else _last_before(database, user_id, only.first, days=0)
    look_after = max(lowest, highest - MAX_ENTRIES_LOOKED_AT)
    rows = database.rows(
        _LOOK,
        user_id=user_id,
        after=look_after,
        highest=highest,
        actions=[str(action) for action in only.actions or CreditAction],
        limit=wanted.limit + 1,
    )
    entries = [(int(seq), str(entry)) for seq, entry in rows]
    shown, next_cursor = entries[: wanted.limit], None
    if len(entries) > wanted.limit:
        next_cursor = str(shown[-1][0])
    elif look_after > lowest:
        next_cursor = str(look_after + 1)
    return PageOfRows(shown, next_cursor)


def _last_before(database: Database, user_id: int, day: date | None, *, days: int) -> int:
    """The number of the last entry before a day or so many days after it; 0: there is none.

    ``None``: the number of the newest entry.
    """
    if day is None:
        found = database.rows(_NEWEST, user_id=user_id)
    else:
        found = database.rows(_LAST_BEFORE, user_id=user_id, day=day, days=days)
    return int(found[0][0]) if found else 0


_NEWEST = Statement("SELECT last_seq FROM credit_accounts WHERE user_id = :user_id")
# Each step looks at one entry. Dates are compared at midnight UTC, the sessions' time zone.
_LAST_BEFORE = Statement(
    """
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
"""
)
_LOOK = Statement(
    """
SELECT e.seq, credit_entry_json(e)::text
FROM credit_entries AS e
WHERE e.user_id = :user_id AND e.seq > :after AND e.seq <= :highest
    AND e.action = ANY(CAST(:actions AS text[]))
ORDER BY e.seq DESC LIMIT :limit
"""
)
