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

# The columns of an export, which has one row per member.
CONSENT_COLUMNS = (
    *("consent_at", "consent_how", "consent_ip", "consent_url", "consent_wording"),
    *("consent_confirmed_at", "consent_confirmed_ip", "consent_claimed_by"),
)
_MAX_EXPORTED = 100


class ConsentEvidence(NamedTuple):
    """A consent entry or a consent claim.

    Attributes:
        claimed_by: the source of a claim: ``owner``, or the product that wrote the file. ``None``
            for an act that Pressroom saw itself.
        confirmed: whether Pressroom saw that the act was by the person who has the address. They
            followed a mailed link, then or later, or were logged in.
        list_id: the list to which the person agreed. After a transfer, this is another list.
        place: orders pieces of evidence with equal times.
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
    place: int


# The entries and claims of each record, and the import that last made the record active. An erased
# person has no import. OFFSET 0 makes Postgres look up one record at a time.
_EVIDENCE = (
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
    .subquery("evidence")
)
_COLUMNS = tuple(_EVIDENCE.c[name] for name in ConsentEvidence._fields)


def list_evidence(
    uow: UnitOfWork, member: Subscription, page: PageRequest
) -> PageOfRows[ConsentEvidence]:
    """Return a page of the evidence about one member, newest first; raises ``cursor.invalid``."""
    query = paging.by_moment(select(*_COLUMNS), _EVIDENCE.c.occurred_at, _EVIDENCE.c.place, page)
    rows = [ConsentEvidence(*row) for row in uow.session.execute(query, {"ids": [member.id]})]
    return paging.cut(
        rows, page.limit, lambda each: paging.moment_cursor(each.occurred_at, each.place)
    )


def evidence_by_member(
    connection: Connection, subscription_ids: Collection[int]
) -> Mapping[int, list[ConsentEvidence]]:
    """Return the newest hundred pieces of evidence per member; members without any are missing.

    ``connection`` has the one view of the database that an export reads.
    """
    query = select(_EVIDENCE.c.subscription_id, *_COLUMNS).order_by(
        _EVIDENCE.c.occurred_at.desc(), _EVIDENCE.c.place.desc()
    )
    evidence: dict[int, list[ConsentEvidence]] = defaultdict(list)
    for subscription_id, *values in connection.execute(query, {"ids": list(subscription_ids)}):
        if len(evidence[subscription_id]) < _MAX_EXPORTED:
            evidence[subscription_id].append(ConsentEvidence(*values))
    return evidence


def export_values(evidence: Collection[ConsentEvidence]) -> tuple[str | None, ...]:
    """Return the values of ``CONSENT_COLUMNS``: the newest act of the member, or else a claim.

    A claim by a file is preferred to one by the owner, because the file is further evidence. A
    confirmation has columns of its own, as in the files of other products.
    """
    least_doubt = min(map(_doubt, evidence), default=None)
    surest = [each for each in evidence if _doubt(each) == least_doubt]
    confirmation = next((each for each in surest if each.how == ConsentHow.CONFIRMATION), None)
    act = next((each for each in surest if each.how != ConsentHow.CONFIRMATION), None)
    if act is None:
        act = confirmation
        confirmation = None
    if act is None:
        return (None,) * len(CONSENT_COLUMNS)
    return (
        clock.format_timestamp(act.occurred_at),
        act.how,
        act.ip,
        act.url,
        act.wording,
        clock.format_timestamp(confirmation.occurred_at) if confirmation else None,
        confirmation.ip if confirmation else None,
        act.claimed_by,
    )


def _doubt(evidence: ConsentEvidence) -> int:
    """Rank the evidence by how little it proves; 0 is the best."""
    if evidence.claimed_by is None:
        return 0
    return 2 if evidence.claimed_by == "owner" else 1
