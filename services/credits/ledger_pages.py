"""The pages of an account's ledger.

The entries of an account are numbered without gaps, in the order in which they were written. The
first and the last entry of a day are therefore found by bisection. A filtered page reads a bounded
range of numbers, so it may hold fewer entries than requested, or none. Its cursor says where the
next page begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from core import ids
from core.errors.requests import REQUEST_INVALID
from models import CreditAction
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.database import Database, Statement

# The entries that a filtered page reads.
MAX_ENTRIES_LOOKED_AT = 5_000


@dataclass(frozen=True)
class LedgerFilter:
    """Selects entries of the ledger.

    Attributes:
        actions: the actions to include. All actions are included if it is empty.
        first: the first day (UTC). ``None`` means the day of the oldest entry.
        last: the last day (UTC). ``None`` means the day of the newest entry.
    """

    actions: Sequence[CreditAction] = ()
    first: date | None = None
    last: date | None = None


_EVERYTHING = LedgerFilter()

PAGE = Statement("""
SELECT e.seq, credit_entry_json(e)::text
FROM credit_entries AS e
WHERE e.user_id = :user_id AND e.seq <= coalesce(CAST(:before AS bigint) - 1, (
    SELECT last_seq FROM credit_accounts WHERE user_id = :user_id) - :offset)
ORDER BY e.seq DESC LIMIT :limit
""")


def list_entries(
    database: Database, user_id: int, wanted: PageRequest, only: LedgerFilter = _EVERYTHING
) -> PageOfRows[tuple[int, str]]:
    """Return the number and the JSON text of each entry, newest first.

    An offset is converted to a number, which an index finds, so old pages cost as much as new ones.
    With a filter, an offset raises ``request.invalid``. Raises ``cursor.invalid``.
    """
    if only.actions or only.first is not None or only.last is not None:
        return _list_filtered(database, user_id, wanted, only)
    before = None if wanted.cursor is None else ids.parse_id_cursor(wanted.cursor)
    rows = database.rows(
        PAGE, user_id=user_id, offset=wanted.offset, limit=wanted.limit + 1, before=before
    )
    entries = [(int(seq), str(entry)) for seq, entry in rows]
    return paging.cut(entries, wanted.limit, lambda entry: str(entry[0]))


_ENTRIES_BETWEEN = Statement("""
SELECT e.seq, credit_entry_json(e)::text
FROM credit_entries AS e
WHERE e.user_id = :user_id AND e.seq > :after AND e.seq <= :highest
    AND e.action = ANY(CAST(:actions AS text[]))
ORDER BY e.seq DESC LIMIT :limit
""")


def _list_filtered(
    database: Database, user_id: int, wanted: PageRequest, only: LedgerFilter
) -> PageOfRows[tuple[int, str]]:
    if wanted.offset:
        raise REQUEST_INVALID(place="query.offset", rule="a filter goes on by the cursor alone")
    highest = _last_before(database, user_id, only.last, days=1)
    if wanted.cursor is not None:
        highest = min(highest, ids.parse_id_cursor(wanted.cursor) - 1)
    lowest = 0 if only.first is None else _last_before(database, user_id, only.first, days=0)
    look_after = max(lowest, highest - MAX_ENTRIES_LOOKED_AT)
    actions = [str(action) for action in only.actions or CreditAction]
    bounds = {"after": look_after, "highest": highest, "limit": wanted.limit + 1}
    rows = database.rows(_ENTRIES_BETWEEN, user_id=user_id, actions=actions, **bounds)
    entries = [(int(seq), str(entry)) for seq, entry in rows]
    page = entries[: wanted.limit]
    next_cursor = None
    if len(entries) > wanted.limit:
        next_cursor = str(page[-1][0])
    elif look_after > lowest:
        next_cursor = str(look_after + 1)
    return PageOfRows(page, next_cursor, lambda entry: str(entry[0]))


_LAST_ENTRY = Statement("SELECT last_seq FROM credit_accounts WHERE user_id = :user_id")
# Each step reads one entry. A date becomes midnight UTC, because sessions use UTC.
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


def _last_before(database: Database, user_id: int, day: date | None, *, days: int) -> int:
    """Return the number of the last entry before ``day`` plus ``days``, or 0.

    Without a day, return the number of the newest entry.
    """
    if day is None:
        rows = database.rows(_LAST_ENTRY, user_id=user_id)
    else:
        rows = database.rows(_LAST_BEFORE, user_id=user_id, day=day, days=days)
    return int(rows[0][0]) if rows else 0
