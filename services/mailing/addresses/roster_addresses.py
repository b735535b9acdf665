"""Where the mail of a list goes: to the address that a member's account has now.

Two records of one person that are about to merge get one mail, and none where one of the two says
no: what the person said by either address holds from the moment at which both were proved.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, text

from core.keyring import Keyring
from services.mailing.subscriptions import opt_outs

_MOVED = text("""
SELECT u.id, u.email, u.erased_at IS NOT NULL AS is_gone
FROM moved_accounts AS m JOIN users AS u ON u.id = m.user_id
WHERE m.user_id = ANY(:ids)
""")
_REFUSED = text("""
SELECT address_hmac FROM opt_outs WHERE list_id = :list_id AND address_hmac = ANY(:digests)
""")
# Both records of each merge to come, and whether the one says no for the other.
_PAIRS = text("""
SELECT p.id, EXISTS (
    SELECT FROM opt_outs AS o WHERE o.list_id = :list_id AND o.user_id = p.twin_id
) OR EXISTS (
    SELECT FROM subscriptions AS s WHERE s.list_id = :list_id AND s.user_id = p.twin_id
        AND (s.status = 'unsubscribed' OR s.status <> 'removed' AND NOT s.email_enabled)
) AS says_no
FROM account_merges AS g CROSS JOIN LATERAL (
    VALUES (g.user_id, g.merged_id), (g.merged_id, g.user_id)
) AS p (id, twin_id)
WHERE g.status IN ('agreed', 'merging') AND g.finished_at IS NULL
    AND (g.user_id = ANY(:ids) OR g.merged_id = ANY(:ids))
""")


class RosterAddresses:
    """The addresses of one roster, whose rows come in batches."""

    def __init__(self, keyring: Keyring, list_id: int) -> None:
        self._digests = opt_outs.address_digester(keyring)
        self._list_id = list_id
        # Of people with two records: those that the roster has.
        self._had: set[str] = set()

    def of(
        self, reading: Connection, rows: Sequence[Row[*tuple[Any, ...]]]
    ) -> Iterator[tuple[str, str | None, int]]:
        """Address, name and person of each row ``(email, name, user_id)`` that gets mail."""
        ids = [user_id for _, _, user_id in rows]
        found = reading.execute(_MOVED, {"ids": ids}).all()
        moved = {row.id: row.email for row in found}
        refused = self._refused(reading, moved) | {row.id for row in found if row.is_gone}
        about = {"ids": ids, "list_id": self._list_id}
        twins = {row.id: row.says_no for row in reading.execute(_PAIRS, about)}
        for email, name, user_id in rows:
            address = moved.get(user_id, email)
            if user_id in refused or twins.get(user_id):
                continue
            if user_id in twins:
                if address in self._had:
                    continue
                self._had.add(address)
            yield address, name, user_id

    def _refused(self, reading: Connection, moved: dict[int, str]) -> set[int]:
        """Whose new address an opt-out is kept under, such as that of a person who was erased."""
        if not moved:
            return set()
        whose = {
            digest: user_id
            for user_id, address in moved.items()
            for digest in self._digests(address)
        }
        about = {"list_id": self._list_id, "digests": list(whose)}
        return {whose[bytes(digest)] for (digest,) in reading.execute(_REFUSED, about)}
