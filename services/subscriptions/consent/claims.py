"""Consent claims: what the rows of an imported file say about how members agreed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from core.settings import origins
from core.settings.notations import Retained
from models import ConsentHow
from services.subscriptions.consent.entries import read_ip
from storage.unit_of_work import UnitOfWork

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


_TAKE_BACK = text("SELECT take_back_claims(:import_id, :most)")


def take_back(uow: UnitOfWork, import_id: int, *, most: int) -> int:
    """Delete the next claims of an import that is being undone; how many they were.

    The database refuses it for any other import.
    """
    return uow.session.scalar(_TAKE_BACK, {"import_id": import_id, "most": most}) or 0
