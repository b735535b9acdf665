"""Entries: the acts by which people came onto lists, each written in the act's transaction."""

import ipaddress
from collections.abc import Mapping, Sequence

from sqlalchemy import select, text

from models import ConsentEntry, ConsentHow, MailingList, Subscription
from storage.unit_of_work import UnitOfWork

# These say nothing of the person, but that the owner takes them to agree.
BY_OWNER = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# What an act shows that came this way, as subscriptions name the ways, unless it was the owner's.
BY_VIA: Mapping[str, ConsentHow] = {
    "login": ConsentHow.LOGIN,
    "challenge": ConsentHow.FORM,
    "form": ConsentHow.FORM,
    "confirmation": ConsentHow.CONFIRMATION,
    "trace": ConsentHow.LINK,
    "one-click": ConsentHow.LINK,
    "page": ConsentHow.LINK,
    "import": ConsentHow.IMPORT,
    # The operator's, in the name of the owner.
    "command": ConsentHow.OWNER,
    # The undo of an act on many members at once.
    "bulk": ConsentHow.OWNER,
}
# A person who comes and goes all day has more; the newest are carried to another list.
_MAX_CARRIED = 1_000
_ALL_ROWS = 2**31 - 1


def record(
    uow: UnitOfWork,
    subscription: Subscription,
    how: ConsentHow,
    *,
    ip: str | None,
    url: str | None,
    browser: str | None,
) -> None:
    """Note that the person came onto the list just now, and where from if it was their own act."""
    entry = ConsentEntry(list_id=subscription.list_id, user_id=subscription.user_id, how=how)
    if how not in BY_OWNER:
        entry.ip, entry.url, entry.browser = read_ip(ip), url, browser
        # What the list says now, whatever this transaction has read of the list.
        version = select(MailingList.consent_wording_version)
        entry.wording_version = version.where(
            MailingList.id == subscription.list_id
        ).scalar_subquery()
    uow.session.add(entry)


def read_ip(written: str | None) -> str | None:
    """The address, or a network as an export of ours has it once the address is shortened.

    ``None`` for any other text, whatever a proxy or a file says.
    """
    ip = (written or "").strip()
    try:
        found = ipaddress.ip_network(ip, strict=False)
    except ValueError:
        return None
    if "%" in ip:  # an interface of some machine, by any name
        return None
    if found.prefixlen == found.max_prefixlen:
        return str(found.network_address)
    # A smaller network is as good as an address.
    return str(found.supernet(new_prefix=min(found.prefixlen, _NETWORK_BITS[found.version])))


# As ``network_of_ip`` of the database has them.
_NETWORK_BITS = {4: 24, 6: 48}


def carry_over(uow: UnitOfWork, leaving: Subscription, there: Subscription) -> None:
    """Let a member's record on another list show how they agreed to this one.

    Each entry and claim is carried once, however often the member is moved back and forth.
    """
    values = {
        "user_id": leaving.user_id,
        "leaving_id": leaving.id,
        "there_id": there.id,
        "list_id": leaving.list_id,
        "to_list_id": there.list_id,
        "most": _MAX_CARRIED,
    }
    uow.session.execute(_CARRY_ENTRIES, values)
    uow.session.execute(_CARRY_CLAIMS, values)


def erase(uow: UnitOfWork, people: Sequence[int], *, most: int = _ALL_ROWS) -> int:
    """Delete what shows how erased or purged people came onto lists; how many rows they were.

    The wordings of lists that they owned are blanked. The database leaves the rows of other people
    alone, whomever this names.
    """
    return uow.session.scalar(_ERASE, {"people": list(people), "most": most}) or 0


_ERASE = text("SELECT erase_consent(CAST(:people AS bigint[]), :most)")
_CARRY_ENTRIES = text("""
WITH of_member AS (
    SELECT how, occurred_at, ip, url, browser, wording_version,
        coalesce(of_list_id, list_id) AS of_list_id, import_id
    FROM consent_entries WHERE user_id = :user_id AND list_id = :list_id
    ORDER BY id DESC LIMIT :most
), found AS (
    SELECT * FROM of_member
    UNION ALL
    SELECT 'import', imported_at, NULL, NULL, NULL, NULL, list_id, import_id
    FROM subscriptions WHERE id = :leaving_id AND import_id IS NOT NULL
)
INSERT INTO consent_entries (list_id, user_id, how, occurred_at, ip, url, browser, wording_version,
    of_list_id, import_id)
SELECT :to_list_id, :user_id, how, occurred_at, ip, url, browser, wording_version, of_list_id,
    import_id
FROM found AS f
-- What came from there once is there still.
WHERE of_list_id <> :to_list_id AND NOT EXISTS (
    SELECT FROM consent_entries AS e WHERE e.user_id = :user_id AND e.list_id = :to_list_id
        AND e.of_list_id = f.of_list_id AND e.how = f.how AND e.occurred_at = f.occurred_at
)
ORDER BY occurred_at
""")
_CARRY_CLAIMS = text("""
INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, url, wording,
    claimed_by, of_list_id)
SELECT import_id, :there_id, how, occurred_at, ip, url, wording, claimed_by,
    coalesce(of_list_id, :list_id)
FROM consent_claims WHERE subscription_id = :leaving_id
ON CONFLICT DO NOTHING
""")
