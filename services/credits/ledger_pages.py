"""Lists the ledger entries of a credit account in pages.

The ledger entries of each account are numbered without gaps, in the order in which they were
written. A binary search over the entry numbers finds the first and the last entry of a day. A
request with a filter reads a limited number of entries, so its page may contain few matching
entries or none. The cursor of a filtered page is the number of the entry where the next page
begins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from core import clock, ids
from core.errors.requests import REQUEST_INVALID
from core.ids import AccountId
from models import CreditAction
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.database import Database, Statement

# The maximum number of ledger entries that a request with a filter reads.
MAX_SCANNED_ENTRIES = 5_000


@dataclass(frozen=True)
class LedgerFilter:
    """Selects ledger entries by action and by day in UTC. An empty or missing value selects all."""

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
    database: Database,
    account_id: AccountId,
    page_request: PageRequest,
    ledger_filter: LedgerFilter = _EVERYTHING,
) -> PageOfRows[tuple[int, str]]:
    """Return a page of ledger entries as pairs of entry number and JSON text, newest first.

    An offset is converted to an entry number, so old pages are found as fast as new ones. A filter
    and an offset exclude each other.
    """
    if ledger_filter.actions or ledger_filter.first is not None or ledger_filter.last is not None:
        return _list_filtered(database, account_id, page_request, ledger_filter)
    before = None if page_request.cursor is None else ids.parse_id_cursor(page_request.cursor)
    rows = database.rows(
        PAGE,
        user_id=account_id,
        offset=page_request.offset,
        limit=page_request.limit + 1,
        before=before,
    )
    entries = [(int(seq), str(entry)) for seq, entry in rows]
    return paging.cut_page(entries, page_request.limit, lambda entry: str(entry[0]))


_ENTRIES_BETWEEN = Statement("""
SELECT e.seq, credit_entry_json(e)::text
FROM credit_entries AS e
WHERE e.user_id = :user_id AND e.seq > :after AND e.seq <= :highest
    AND e.action = ANY(CAST(:actions AS text[]))
ORDER BY e.seq DESC LIMIT :limit
""")


def _list_filtered(
    database: Database,
    account_id: AccountId,
    page_request: PageRequest,
    ledger_filter: LedgerFilter,
) -> PageOfRows[tuple[int, str]]:
    if page_request.offset:
        raise REQUEST_INVALID(
            place="query.offset", rule="can't be combined with a filter; use the cursor"
        )
    highest = _last_number_before(database, account_id, ledger_filter.last, days=1)
    if page_request.cursor is not None:
        highest = min(highest, ids.parse_id_cursor(page_request.cursor) - 1)
    lowest = (
        0
        if ledger_filter.first is None
        else _last_number_before(database, account_id, ledger_filter.first, days=0)
    )
    scan_after = max(lowest, highest - MAX_SCANNED_ENTRIES)
    actions = [str(action) for action in ledger_filter.actions or CreditAction]
    bounds = {"after": scan_after, "highest": highest, "limit": page_request.limit + 1}
    rows = database.rows(_ENTRIES_BETWEEN, user_id=account_id, actions=actions, **bounds)
    entries = [(int(seq), str(entry)) for seq, entry in rows]
    page = entries[: page_request.limit]
    next_cursor = None
    if len(entries) > page_request.limit:
        next_cursor = str(page[-1][0])
    elif scan_after > lowest:
        next_cursor = str(scan_after + 1)
    return PageOfRows(page, next_cursor, lambda entry: str(entry[0]))


# Reversed spending reduces the sum. Spending that became a debt doesn't change the balance.
_SPENDING = Statement("""
SELECT e.source_type, -sum(e.delta), (
    SELECT created_at FROM credit_entries WHERE user_id = :user_id AND seq = :after + 1)
FROM credit_entries AS e
WHERE e.user_id = :user_id AND e.seq > :after AND e.action IN ('consume', 'consume_reversal')
GROUP BY e.source_type
""")


@dataclass(frozen=True)
class Spending:
    """The spent credits by the type of their source, since a time."""

    since: datetime
    amounts: Mapping[str, Decimal]

    @property
    def total(self) -> Decimal:
        return sum(self.amounts.values(), Decimal(0))


def sum_spending(database: Database, account_id: AccountId, *, days: int) -> Spending:
    """Sum up an account's spending in the last days, or in its last ``MAX_SCANNED_ENTRIES``.

    For a newer account, the period begins with the first ledger entry.
    """
    since = clock.now() - timedelta(days=days)
    newest = _last_number_before(database, account_id, None, days=0)
    before_period = _last_number_before(database, account_id, since.date(), days=0)
    after = max(before_period, newest - MAX_SCANNED_ENTRIES)
    rows = database.rows(_SPENDING, user_id=account_id, after=after)
    if rows and (after > before_period or after == 0):
        since = rows[0][2]
    return Spending(since, {str(source): Decimal(amount) for source, amount, _ in rows if amount})


_LAST_ENTRY = Statement("SELECT last_seq FROM credit_accounts WHERE user_id = :user_id")
# Finds the last ledger entry before a day by binary search. Days begin at midnight UTC, because the
# database session uses UTC.
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


def _last_number_before(
    database: Database, account_id: AccountId, day: date | None, *, days: int
) -> int:
    """Return the number of an account's last ledger entry before the day ``day + days``, or 0.

    If ``day`` is ``None``, return the number of the newest ledger entry.
    """
    if day is None:
        rows = database.rows(_LAST_ENTRY, user_id=account_id)
    else:
        rows = database.rows(_LAST_BEFORE, user_id=account_id, day=day, days=days)
    return int(rows[0][0]) if rows else 0
