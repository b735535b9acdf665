"""Reads the consent entries and consent claims that show how a member agreed to get mail."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import BigInteger, Boolean, Connection, DateTime, String, select, text
from sqlalchemy.dialects.postgresql import JSONB

from core import clock
from models import ConsentHow, Subscription
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# The columns that contain consent evidence in an export of a list's members.
CONSENT_COLUMNS = (
    "consent_at",
    "consent_how",
    "consent_ip",
    "consent_url",
    "consent_wording",
    "consent_confirmed_at",
    "consent_confirmed_ip",
    "consent_claimed_by",
)
_MAX_EXPORTED_PER_MEMBER = 100


class ConsentEvidence(NamedTuple):
    """A consent entry or a consent claim.

    Attributes:
        claimed_by: ``owner``, the product that wrote the imported file, or ``None`` if the person
            consented through Pressroom itself.
        confirmed: whether the person followed a mailed link or logged in.
        list_id: the list that the person originally joined. Evidence that a transfer copied keeps
            the id of the original list.
        engagement: whether the person allowed the list to record opens and clicks. Otherwise, the
            person agreed to get the list's mail.
        place: the order of evidence with the same timestamp.
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
    origin: Mapping[str, str] | None
    engagement: bool
    place: int


# Selects the consent entries and claims of each subscription, and the latest import that made the
# subscription active. For an erased person, the query selects no import. OFFSET 0 makes Postgres
# look up subscriptions one by one.
_EVIDENCE = (
    text("""
SELECT m.id AS subscription_id, e.occurred_at, e.how, e.ip, e.url, e.browser, coalesce(
        e.engagement_wording, (
            SELECT w.wording FROM consent_wordings AS w
            WHERE w.list_id = coalesce(e.of_list_id, m.list_id) AND w.version = e.wording_version
        )
    ) AS wording, e.wording_version,
    CASE WHEN e.how IN ('owner', 'import', 'transfer') THEN 'owner' END AS claimed_by,
    e.how IN ('confirmation', 'login', 'link') OR e.how = 'form' AND EXISTS (
        SELECT FROM consent_entries AS c WHERE c.user_id = e.user_id AND c.list_id = e.list_id
            AND c.how = 'confirmation' AND c.occurred_at >= e.occurred_at
    ) AS confirmed,
    coalesce(e.of_list_id, m.list_id) AS list_id, e.import_id, e.origin,
    e.engagement_wording IS NOT NULL AS engagement, e.id * 2 AS place
FROM subscriptions AS m CROSS JOIN LATERAL (
    SELECT * FROM consent_entries WHERE user_id = m.user_id AND list_id = m.list_id OFFSET 0
) AS e
WHERE m.id = ANY(CAST(:ids AS bigint[]))
UNION ALL
SELECT m.id, c.occurred_at, c.how, c.ip, c.url, NULL, c.wording, NULL, c.claimed_by, false,
    coalesce(c.of_list_id, m.list_id), c.import_id, c.origin,
    false, 1 + 2 * (8 * c.import_id + array_position(
        '{form,confirmation,login,link,owner,import,transfer}'::text[], c.how::text))
FROM subscriptions AS m CROSS JOIN LATERAL (
    SELECT * FROM consent_claims WHERE subscription_id = m.id OFFSET 0
) AS c
WHERE m.id = ANY(CAST(:ids AS bigint[]))
UNION ALL
SELECT id, imported_at, 'import', NULL, NULL, NULL, NULL, NULL, 'owner', false, list_id, import_id,
    NULL, false, 0
FROM subscriptions
WHERE id = ANY(CAST(:ids AS bigint[])) AND import_id IS NOT NULL AND email IS NOT NULL
""")
    .columns(
        **dict.fromkeys(("subscription_id", "list_id", "import_id", "place"), BigInteger()),
        **dict.fromkeys(("how", "ip", "url", "browser", "wording", "claimed_by"), String()),
        wording_version=BigInteger(),
        occurred_at=DateTime(timezone=True),
        confirmed=Boolean(),
        engagement=Boolean(),
        origin=JSONB(),
    )
    .subquery("evidence")
)
_COLUMNS = tuple(_EVIDENCE.c[name] for name in ConsentEvidence._fields)


def list_evidence(
    uow: UnitOfWork, member: Subscription, page: PageRequest
) -> PageOfRows[ConsentEvidence]:
    query = paging.select_page_by_moment(
        select(*_COLUMNS), _EVIDENCE.c.occurred_at, _EVIDENCE.c.place, page
    )
    rows = [ConsentEvidence(*row) for row in uow.session.execute(query, {"ids": [member.id]})]
    return paging.cut_page(
        rows, page.limit, lambda each: paging.build_moment_cursor(each.occurred_at, each.place)
    )


def read_evidence_by_member(
    connection: Connection, subscription_ids: Collection[int]
) -> Mapping[int, list[ConsentEvidence]]:
    """Return at most the newest hundred pieces per member, in the snapshot of ``connection``."""
    query = select(_EVIDENCE.c.subscription_id, *_COLUMNS).order_by(
        _EVIDENCE.c.occurred_at.desc(), _EVIDENCE.c.place.desc()
    )
    evidence: dict[int, list[ConsentEvidence]] = defaultdict(list)
    for subscription_id, *values in connection.execute(query, {"ids": list(subscription_ids)}):
        if len(evidence[subscription_id]) < _MAX_EXPORTED_PER_MEMBER:
            evidence[subscription_id].append(ConsentEvidence(*values))
    return evidence


def build_export_values(evidence: Collection[ConsentEvidence]) -> tuple[str | None, ...]:
    """Return the strongest evidence, or the newest of several equally strong pieces.

    The confirmation has separate columns, as in other newsletter products.
    """
    evidence = [each for each in evidence if not each.engagement]
    best_rank = min(map(_rank_by_strength, evidence), default=None)
    strongest = [each for each in evidence if _rank_by_strength(each) == best_rank]
    confirmation = next((each for each in strongest if each.how == ConsentHow.CONFIRMATION), None)
    consent = next((each for each in strongest if each.how != ConsentHow.CONFIRMATION), None)
    if consent is None:
        consent = confirmation
        confirmation = None
    if consent is None:
        return (None,) * len(CONSENT_COLUMNS)
    return (
        clock.format_timestamp(consent.occurred_at),
        consent.how,
        consent.ip,
        consent.url,
        consent.wording,
        clock.format_timestamp(confirmation.occurred_at) if confirmation else None,
        confirmation.ip if confirmation else None,
        consent.claimed_by,
    )


def _rank_by_strength(evidence: ConsentEvidence) -> int:
    """Return 0 for the strongest kind to 2 for the weakest."""
    if evidence.claimed_by is None:
        return 0
    return 2 if evidence.claimed_by == "owner" else 1
