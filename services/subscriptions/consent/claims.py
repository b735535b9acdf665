"""Consent claims, which are statements in an imported file about how members agreed to get mail.

An import records at most one claim about a member for each kind of consent (``how``). A missing or
invalid time becomes the current time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import orjson
from sqlalchemy import text

from core.settings import origins
from core.settings.notations import Retained
from models import ConsentHow
from services.subscriptions.consent.entries import normalise_ip
from services.subscriptions.sign_up_origins import Origin
from storage.unit_of_work import UnitOfWork

MAX_CLAIMED_WORDING_CHARACTERS = 2_000


@dataclass(frozen=True)
class ClaimedConsent:
    """A claim with a normalised ``email``. Other values are as in the file."""

    email: str
    how: ConsentHow
    occurred_at: datetime | None = None
    ip: str | None = None
    url: str | None = None
    wording: str | None = None
    origin: Origin = field(default_factory=dict)


# OFFSET 0 makes Postgres look up members one by one. Check the status outside the subquery, because
# Postgres would otherwise read all active members of the list for each claim. If a claim is older
# than the retention period for IP addresses, store only the IP address's network.
_RECORD_CLAIMS = text("""
INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, url, wording,
    origin, claimed_by)
SELECT i.id, m.id, c.how, t.moment,
    CASE WHEN t.moment < now() - :age AND strpos(c.ip, '/') = 0 THEN network_of_ip(c.ip)
        ELSE c.ip END,
    c.url, c.wording, CAST(c.origin AS jsonb), :claimed_by
FROM imports AS i
CROSS JOIN unnest(CAST(:people AS bigint[]), CAST(:hows AS text[]), CAST(:moments AS timestamptz[]),
    CAST(:ips AS text[]), CAST(:urls AS text[]), CAST(:wordings AS text[]),
    CAST(:origins AS text[])) AS c (user_id, how, moment, ip, url, wording, origin)
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
_DELETE_CLAIMS = text("SELECT take_back_claims(:import_id, :most)")


def record_claims(
    uow: UnitOfWork,
    import_id: int,
    claims: Sequence[ClaimedConsent],
    *,
    people: Mapping[str, int],
    claimed_by: str,
) -> int:
    """Record claims, and return their number. ``people`` maps addresses to user ids.

    The caller must have locked the list and stored the imported members.
    """
    # Remove NUL characters, which Postgres can't store.
    wordings = [(each.wording or "").replace("\0", "").strip() for each in claims]
    values = {
        "import_id": import_id,
        "people": [people[each.email] for each in claims],
        "hows": [each.how.value for each in claims],
        "moments": [each.occurred_at for each in claims],
        "ips": [normalise_ip(each.ip) for each in claims],
        "urls": [origins.strip_query((each.url or "").strip()) for each in claims],
        "wordings": [each[:MAX_CLAIMED_WORDING_CHARACTERS] or None for each in wordings],
        "origins": [orjson.dumps(each.origin).decode() if each.origin else None for each in claims],
        "claimed_by": claimed_by,
        "age": timedelta(days=uow.settings.retention[Retained.IP_ADDRESSES]),
    }
    return len(uow.session.execute(_RECORD_CLAIMS, values).all())


def delete_claims(uow: UnitOfWork, import_id: int, *, limit: int) -> int:
    """Delete claims of an import.

    The database function refuses to do so before the import's undo has started.
    """
    return uow.session.scalar(_DELETE_CLAIMS, {"import_id": import_id, "most": limit}) or 0
