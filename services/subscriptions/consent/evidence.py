"""Evidence that a member agreed: the consent entries and claims that owners see."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import BigInteger, Boolean, Connection, DateTime, String, select, text

from core import clock
from models import ConsentHow, Subscription
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# An export has so many of one member.
_MAX_EXPORTED = 100


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
