"""Stores opt-outs of addresses that belong to no member, once per owner with the lists.

Senders report these opt-outs. A person can undo them for each list separately.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text

from core.ids import AccountId
from storage.array_texts import format_numbers
from storage.unit_of_work import UnitOfWork

# Compare the whole arrays first, because a repeated report usually has the same lists. The operator
# ``@>`` would compare each list with each other list.
_HAS_NEW_LISTS = """{stored}.list_ids <> {new}.list_ids AND EXISTS (
    SELECT unnest({new}.list_ids) EXCEPT SELECT unnest({stored}.list_ids)
)"""
_MERGE = f"""
ON CONFLICT (user_id, address_hmac) DO UPDATE SET
    list_ids = ARRAY(
        SELECT unnest(o.list_ids) UNION SELECT unnest(excluded.list_ids) ORDER BY 1
    ),
    updated_at = clock_timestamp(),
    is_journaled = false
    WHERE {_HAS_NEW_LISTS.format(stored="o", new="excluded")}
RETURNING address_hmac
"""
_REPORTED = """(
    SELECT address_hmac, source,
        coalesce(CAST(list_ids AS bigint[]), CAST(:covered_ids AS bigint[])) AS list_ids
    FROM unnest(CAST(:digests AS bytea[]), CAST(:sources AS text[]), CAST(:list_sets AS text[]))
        AS r (address_hmac, source, list_ids)
) AS r"""
# Inserts the rows in a fixed order, so that concurrent transactions can't deadlock.
_RECORD = text(f"""
INSERT INTO address_opt_outs AS o (user_id, address_hmac, source, list_ids)
SELECT :owner_id, address_hmac, source, list_ids FROM {_REPORTED} ORDER BY address_hmac
{_MERGE}
""")  # noqa: S608 - no input
_FIND_NEW = text(f"""
SELECT r.address_hmac FROM {_REPORTED}
LEFT JOIN address_opt_outs AS o ON o.user_id = :owner_id AND o.address_hmac = r.address_hmac
WHERE o.user_id IS NULL OR {_HAS_NEW_LISTS.format(stored="o", new="r")}
""")  # noqa: S608 - no input
# Skips lists that were created after the backup, because the restored database doesn't contain
# them. Returns no row if the database contains the opt-out.
_RESTORE = text(f"""
INSERT INTO address_opt_outs AS o (user_id, address_hmac, source, created_at, list_ids)
SELECT :owner_id, :digest, :source, :created_at, array_agg(id ORDER BY id)
FROM lists WHERE user_id = :owner_id AND id = ANY (CAST(:list_ids AS bigint[]))
HAVING count(*) > 0
{_MERGE}
""")  # noqa: S608 - no input
_OF_LIST = """
    user_id = (SELECT user_id FROM lists WHERE id = :list_id)
    AND address_hmac = ANY (:digests) AND :list_id = ANY (list_ids)
"""
_LIFT = text(f"""
WITH deleted AS (
    DELETE FROM address_opt_outs WHERE {_OF_LIST} AND cardinality(list_ids) = 1
)
UPDATE address_opt_outs SET list_ids = array_remove(list_ids, :list_id)
WHERE {_OF_LIST} AND cardinality(list_ids) > 1
""")  # noqa: S608 - no input
# Returns the lists as JSON, so that the process doesn't create an object for each list.
_FIND_UNJOURNALED = text("""
SELECT user_id, address_hmac, list_ids, source, created_at, updated_at
FROM (
    SELECT user_id, address_hmac, CAST(array_to_json(list_ids) AS text) AS list_ids, source,
        created_at, updated_at,
        sum(cardinality(list_ids)) OVER earlier - cardinality(list_ids) AS earlier_lists
    FROM (
        SELECT * FROM address_opt_outs WHERE NOT is_journaled ORDER BY updated_at LIMIT :max_rows
    ) AS oldest
    WINDOW earlier AS (ORDER BY updated_at, user_id, address_hmac)
) AS numbered
WHERE earlier_lists < :max_lists
""")
# Skips a row that has got more lists since the row was read.
_MARK_JOURNALED = text("""
UPDATE address_opt_outs AS o SET is_journaled = true
FROM unnest(CAST(:user_ids AS bigint[]), CAST(:digests AS bytea[]), CAST(:times AS timestamptz[]))
    AS r (user_id, address_hmac, updated_at)
WHERE o.user_id = r.user_id AND o.address_hmac = r.address_hmac AND o.updated_at = r.updated_at
""")


@dataclass(frozen=True, slots=True)
class ReportedAddress:
    """If ``list_ids`` is ``None``, the opt-out applies to all lists that the sender covers."""

    digest: bytes
    source: str
    list_ids: Collection[int] | None = None


class UnjournaledOptOut(NamedTuple):
    """An opt-out for the journal next to the backups. ``list_ids`` is a JSON array."""

    user_id: AccountId
    address_hmac: bytes
    list_ids: str
    source: str
    created_at: datetime
    updated_at: datetime


def record(
    uow: UnitOfWork,
    account_id: AccountId,
    covered_ids: Collection[int],
    reported: Sequence[ReportedAddress],
) -> set[bytes]:
    """Store opt-outs of distinct addresses.

    Return the digests of the addresses that had no opt-out from at least one of the lists.
    """
    return _execute(uow, _RECORD, account_id, covered_ids, reported)


def find_new(
    uow: UnitOfWork,
    account_id: AccountId,
    covered_ids: Collection[int],
    reported: Sequence[ReportedAddress],
) -> set[bytes]:
    return _execute(uow, _FIND_NEW, account_id, covered_ids, reported)


def _execute(
    uow: UnitOfWork,
    statement: TextClause,
    account_id: AccountId,
    covered_ids: Iterable[int],
    reported: Sequence[ReportedAddress],
) -> set[bytes]:
    values = {
        "owner_id": account_id,
        "covered_ids": format_numbers(sorted(covered_ids)),
        "digests": [each.digest for each in reported],
        "sources": [each.source for each in reported],
        "list_sets": [
            None if each.list_ids is None else format_numbers(sorted(each.list_ids))
            for each in reported
        ],
    }
    return {bytes(digest) for digest in uow.session.scalars(statement, values)}


def restore(
    uow: UnitOfWork,
    account_id: AccountId,
    list_ids: Iterable[int],
    address_hmac: bytes,
    *,
    source: str,
    at: datetime,
) -> bool:
    """Store an opt-out that a restored backup lacks, or return false if it has the opt-out."""
    values = {
        "owner_id": account_id,
        "digest": address_hmac,
        "list_ids": format_numbers(list_ids),
        "source": source,
        "created_at": at,
    }
    return uow.session.scalar(_RESTORE, values) is not None


def lift(uow: UnitOfWork, list_id: int, digests: Collection[bytes]) -> None:
    uow.session.execute(_LIFT, {"list_id": list_id, "digests": [*digests]})


def find_unjournaled(
    uow: UnitOfWork, *, max_rows: int, max_lists: int
) -> Sequence[UnjournaledOptOut]:
    """Return the oldest opt-outs for the journal, until they have ``max_lists`` lists together."""
    values = {"max_rows": max_rows, "max_lists": max_lists}
    return [
        UnjournaledOptOut(*row)._replace(address_hmac=bytes(row.address_hmac))
        for row in uow.session.execute(_FIND_UNJOURNALED, values)
    ]


def mark_journaled(uow: UnitOfWork, opt_outs: Sequence[UnjournaledOptOut]) -> None:
    values: dict[str, Any] = {
        "user_ids": [each.user_id for each in opt_outs],
        "digests": [each.address_hmac for each in opt_outs],
        "times": [each.updated_at for each in opt_outs],
    }
    uow.session.execute(_MARK_JOURNALED, values)
