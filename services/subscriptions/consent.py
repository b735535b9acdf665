"""Entries: the acts by which people came onto lists, each written in the act's transaction."""

import ipaddress
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import BigInteger, Boolean, Connection, DateTime, String, func, select, text, tuple_

from core import clock
from core.errors.mailing import LIST_CONSENT_WORDINGS
from core.settings import origins
from core.settings.notations import Retained
from models import ConsentEntry, ConsentHow, ConsentWording, MailingList, Subscription
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# These say nothing of the person, but that the owner takes them to agree.
BY_OWNER = frozenset({ConsentHow.OWNER, ConsentHow.IMPORT, ConsentHow.TRANSFER})
# How a person who came this way agreed, unless the act was the owner's.
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
    # The undo of a bulk action at once.
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
        # The wording that the list has now, whatever this transaction has read of the list.
        of_list = MailingList.id == subscription.list_id
        version = select(MailingList.consent_wording_version).where(of_list)
        entry.wording_version = version.scalar_subquery()
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
    values = {"user_id": leaving.user_id, "leaving_id": leaving.id, "there_id": there.id}
    values |= {"list_id": leaving.list_id, "to_list_id": there.list_id, "most": _MAX_CARRIED}
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


MAX_CLAIMED_WORDING_CHARACTERS = 2_000


@dataclass(frozen=True)
class ConsentClaimed:
    """How one row of a file says that a member agreed. All but ``email`` is as it is there."""

    email: str
    how: ConsentHow
    occurred_at: datetime | None = None
    ip: str | None = None
    url: str | None = None
    wording: str | None = None


def claim_many(
    uow: UnitOfWork,
    import_id: int,
    claims: Sequence[ConsentClaimed],
    *,
    people: Mapping[str, int],
    claimed_by: str,
) -> int:
    """Keep the claims about active members of the import's list; how many they were.

    Call it after the members were written, under the list's lock. A member has one claim of each
    kind by an import. A time in the future or before 1970 counts as now, and a text that is no IP
    address or no URL of the web as none.

    Args:
        people: the person of each claim's address: the list may know them by another one.
        claimed_by: the product whose file it is, or ``file``.
    """
    # No text of Postgres holds a NUL character.
    wordings = [(each.wording or "").replace("\0", "").strip() for each in claims]
    values = {
        "import_id": import_id,
        "people": [people[each.email] for each in claims],
        "hows": [each.how.value for each in claims],
        "moments": [each.occurred_at for each in claims],
        "ips": [read_ip(each.ip) for each in claims],
        "urls": [origins.page_of((each.url or "").strip()) for each in claims],
        "wordings": [each[:MAX_CLAIMED_WORDING_CHARACTERS] or None for each in wordings],
        "claimed_by": claimed_by,
        "age": timedelta(days=uow.settings.retention[Retained.IP_ADDRESSES]),
    }
    return len(uow.session.execute(_CLAIM, values).all())


def take_back(uow: UnitOfWork, import_id: int, *, most: int) -> int:
    """Delete the next claims of an import that is being undone; how many they were.

    The database refuses it for any other import.
    """
    return uow.session.scalar(_TAKE_BACK, {"import_id": import_id, "most": most}) or 0


_TAKE_BACK = text("SELECT take_back_claims(:import_id, :most)")
# As for the rows of a chunk, OFFSET 0 makes Postgres look up one member at a time, and by the pair:
# asked for active members there, it read all those of the list for each one. An address that
# is old already is not kept whole until the next maintenance: a file may have a million of them.
_CLAIM = text("""
INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, url, wording,
    claimed_by)
SELECT i.id, m.id, c.how, t.moment,
    CASE WHEN t.moment < now() - :age AND strpos(c.ip, '/') = 0 THEN network_of_ip(c.ip)
        ELSE c.ip END,
    c.url, c.wording, :claimed_by
FROM imports AS i
CROSS JOIN unnest(CAST(:people AS bigint[]), CAST(:hows AS text[]), CAST(:moments AS timestamptz[]),
    CAST(:ips AS text[]), CAST(:urls AS text[]), CAST(:wordings AS text[]))
    AS c (user_id, how, moment, ip, url, wording)
CROSS JOIN LATERAL (SELECT CASE
    WHEN c.moment BETWEEN 'epoch' AND now() THEN c.moment ELSE now() END
) AS t (moment)
CROSS JOIN LATERAL (
    SELECT id, status FROM subscriptions
    WHERE user_id = c.user_id AND list_id = i.list_id OFFSET 0
) AS m
WHERE i.id = :import_id AND m.status = 'active' ORDER BY m.id
ON CONFLICT DO NOTHING
RETURNING 1
""")


MAX_WORDING_CHARACTERS = 2_000
MAX_WORDINGS = 1_000


def choose(uow: UnitOfWork, mailing_list: MailingList, wording: str | None) -> None:
    """Let a wording hold from now on, or none; raises ``list.consent_wordings``.

    A text that the list had before gets its version back.
    """
    wording = (wording or "").strip()
    if not wording:
        mailing_list.consent_wording_version = None
        uow.session.flush()
        return
    # Two owners' programs that change it at once take turns; no act on the list waits for that.
    held = select(MailingList.id).where(MailingList.id == mailing_list.id)
    uow.session.execute(held.with_for_update(key_share=True))
    of_list = ConsentWording.list_id == mailing_list.id
    found = select(ConsentWording.version).where(of_list, ConsentWording.wording == wording)
    version = uow.session.scalar(found)
    if version is None:
        newest = select(func.max(ConsentWording.version)).where(of_list)
        version = (uow.session.scalar(newest) or 0) + 1
        if version > MAX_WORDINGS:
            raise LIST_CONSENT_WORDINGS(most=MAX_WORDINGS)
        uow.session.add(ConsentWording(list_id=mailing_list.id, version=version, wording=wording))
    mailing_list.consent_wording_version = version
    uow.session.flush()


def of_lists(uow: UnitOfWork, lists: Iterable[MailingList]) -> Mapping[int, str]:
    """The wordings that hold now, by the ids of the lists that have one."""
    wanted = {each.id: each.consent_wording_version for each in lists}
    chosen = [(list_id, version) for list_id, version in wanted.items() if version is not None]
    if not chosen:
        return {}
    key = tuple_(ConsentWording.list_id, ConsentWording.version)
    query = select(ConsentWording.list_id, ConsentWording.wording).where(key.in_(chosen))
    return dict(uow.session.execute(query).all())


# An export has so many of one member.
_MAX_EXPORTED = 100
MAX_OTHERS = 1_000


class ConsentShown(NamedTuple):
    """An entry or a claim.

    Attributes:
        claimed_by: ``None`` for what Pressroom saw itself; otherwise who says so: ``owner``, or
            the product whose file it is.
        confirmed: whether Pressroom saw that it was the address's person: they confirmed a mailed
            token, then or later, came by a link of the list's mail, or were logged in.
        list_id: the list to which the person agreed: another one after a transfer.
    """

    occurred_at: datetime
    how: str
    ip: str | None
    url: str | None
    browser: str | None
    wording: str | None
    wording_version: int | None
    claimed_by: str | None
    confirmed: bool
    list_id: int
    import_id: int | None
    # Tells apart what happened at the same moment.
    place: int


def page(uow: UnitOfWork, member: Subscription, wanted: PageRequest) -> PageOfRows[ConsentShown]:
    """How one member came onto the list, newest first. Raises ``cursor.invalid``."""
    query = paging.by_moment(select(*_SHOWN), _FOUND.c.occurred_at, _FOUND.c.place, wanted)
    found = [ConsentShown(*row) for row in uow.session.execute(query, {"ids": [member.id]})]
    return paging.cut(
        found, wanted.limit, lambda each: paging.moment_cursor(each.occurred_at, each.place)
    )


def others_of_networks(
    uow: UnitOfWork, member: Subscription, found: Collection[ConsentShown]
) -> Mapping[str, int]:
    """How many other people came onto the member's list from the network of each address.

    At most ``MAX_OTHERS`` are counted.
    """
    ips = {each.ip for each in found if each.ip is not None and each.claimed_by is None}
    if not ips:
        return {}
    values = {"ips": sorted(ips), "list_id": member.list_id, "user_id": member.user_id}
    rows = uow.session.execute(_OTHERS, {**values, "most": MAX_OTHERS})
    return {row.ip: row.others for row in rows}


def most_of_one_network(uow: UnitOfWork, list_id: int) -> int:
    """The most people who came onto the list from one network, for the operator."""
    return uow.session.scalar(_MOST, {"list_id": list_id}) or 0


# By an index that has people of one network side by side, so the first ones are enough.
_OTHERS = text("""
SELECT asked.ip, (
    SELECT count(*) FROM (
        SELECT DISTINCT e.user_id FROM consent_entries AS e
        WHERE e.list_id = :list_id AND e.ip IS NOT NULL
            AND network_of_ip(e.ip) = network_of_ip(asked.ip) AND e.user_id <> :user_id
        LIMIT :most
    ) AS people
) AS others
FROM unnest(CAST(:ips AS text[])) AS asked (ip)
""")
_MOST = text("""
SELECT count(DISTINCT user_id) FROM consent_entries
WHERE list_id = :list_id AND ip IS NOT NULL
GROUP BY network_of_ip(ip) ORDER BY 1 DESC LIMIT 1
""")


def of_batch(
    reading: Connection, subscription_ids: Collection[int]
) -> Mapping[int, list[ConsentShown]]:
    """The same of many members, by the ids of their records: of each the hundred newest.

    For exports, whose one view of the database ``reading`` is. Members of whom nothing is known are
    left out.
    """
    query = select(_FOUND.c.subscription_id, *_SHOWN).order_by(
        _FOUND.c.occurred_at.desc(), _FOUND.c.place.desc()
    )
    shown: dict[int, list[ConsentShown]] = defaultdict(list)
    for subscription_id, *values in reading.execute(query, {"ids": list(subscription_ids)}):
        if len(shown[subscription_id]) < _MAX_EXPORTED:
            shown[subscription_id].append(ConsentShown(*values))
    return shown


# The columns of an export, in which each member has one row.
CONSENT_COLUMNS = (
    *("consent_at", "consent_how", "consent_ip", "consent_url", "consent_wording"),
    *("consent_confirmed_at", "consent_confirmed_ip", "consent_claimed_by"),
)


def values_of(found: Collection[ConsentShown]) -> tuple[str | None, ...]:
    """Return ``CONSENT_COLUMNS``: the newest act of the member's own, or else a claim.

    A claim of a file tells more than one of the owner's, such as that there was a file. The
    confirmation has columns of its own, as in the files of other products.
    """
    least = min(map(_doubt, found), default=None)
    surest = [each for each in found if _doubt(each) == least]
    confirmed = next((each for each in surest if each.how == ConsentHow.CONFIRMATION), None)
    best = next((each for each in surest if each.how != ConsentHow.CONFIRMATION), None)
    if best is None:
        best, confirmed = confirmed, None
    if best is None:
        return (None,) * len(CONSENT_COLUMNS)
    at = clock.iso(best.occurred_at)
    told = (clock.iso(confirmed.occurred_at), confirmed.ip) if confirmed else (None, None)
    return at, best.how, best.ip, best.url, best.wording, *told, best.claimed_by


def _doubt(shown: ConsentShown) -> int:
    """Return how little it shows that the member agreed."""
    if shown.claimed_by is None:
        return 0
    return 2 if shown.claimed_by == "owner" else 1


# For each record its entries, the claims about it, and the import that made it active last. A
# person who was erased came by none. OFFSET 0 makes Postgres look up one record at a time.
_FOUND = (
    text("""
SELECT m.id AS subscription_id, e.occurred_at, e.how, e.ip, e.url, e.browser, (
        SELECT w.wording FROM consent_wordings AS w
        WHERE w.list_id = coalesce(e.of_list_id, m.list_id) AND w.version = e.wording_version
    ) AS wording, e.wording_version,
    CASE WHEN e.how IN ('owner', 'import', 'transfer') THEN 'owner' END AS claimed_by,
    e.how IN ('confirmation', 'login', 'link') OR e.how = 'form' AND EXISTS (
        SELECT FROM consent_entries AS c WHERE c.user_id = e.user_id AND c.list_id = e.list_id
            AND c.how = 'confirmation' AND c.occurred_at >= e.occurred_at
    ) AS confirmed,
    coalesce(e.of_list_id, m.list_id) AS list_id, e.import_id, e.id * 2 AS place
FROM subscriptions AS m CROSS JOIN LATERAL (
    SELECT * FROM consent_entries WHERE user_id = m.user_id AND list_id = m.list_id OFFSET 0
) AS e
WHERE m.id = ANY(CAST(:ids AS bigint[]))
UNION ALL
SELECT m.id, c.occurred_at, c.how, c.ip, c.url, NULL, c.wording, NULL, c.claimed_by, false,
    coalesce(c.of_list_id, m.list_id), c.import_id, 1 + 2 * (8 * c.import_id + array_position(
        '{form,confirmation,login,link,owner,import,transfer}'::text[], c.how::text))
FROM subscriptions AS m CROSS JOIN LATERAL (
    SELECT * FROM consent_claims WHERE subscription_id = m.id OFFSET 0
) AS c
WHERE m.id = ANY(CAST(:ids AS bigint[]))
UNION ALL
SELECT id, imported_at, 'import', NULL, NULL, NULL, NULL, NULL, 'owner', false, list_id, import_id,
    0
FROM subscriptions
WHERE id = ANY(CAST(:ids AS bigint[])) AND import_id IS NOT NULL AND email IS NOT NULL
""")
    .columns(
        **dict.fromkeys(("subscription_id", "list_id", "import_id", "place"), BigInteger()),
        **dict.fromkeys(("how", "ip", "url", "browser", "wording", "claimed_by"), String()),
        wording_version=BigInteger(),
        occurred_at=DateTime(timezone=True),
        confirmed=Boolean(),
    )
    .subquery("found")
)
_SHOWN = tuple(_FOUND.c[name] for name in ConsentShown._fields)
