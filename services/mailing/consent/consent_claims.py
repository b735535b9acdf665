"""Claims: what the files of imports say of how members agreed elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from core.settings import Settings, origins
from core.settings.retention_days import Retained
from models import ConsentHow
from services.mailing.consent.consent_entries import read_ip
from storage.unit_of_work import UnitOfWork

MAX_CLAIMED_WORDING_CHARACTERS = 2_000


@dataclass(frozen=True)
class ConsentClaimed:
    """What one row of a file says. Texts are taken as they are in the file, of any length.

    Attributes:
        email: of the member, normalised.
        occurred_at: ``None`` where the file doesn't say when.
    """

    email: str
    how: ConsentHow
    occurred_at: datetime | None = None
    ip: str | None = None
    url: str | None = None
    wording: str | None = None


def claim_many(
    uow: UnitOfWork,
    settings: Settings,
    import_id: int,
    claims: Sequence[ConsentClaimed],
    *,
    claimed_by: str,
) -> int:
    """Keep the claims about active members of the import's list; how many they were.

    Call it after the members were written, under the list's lock. One member has one claim of each
    kind by an import; a second one is passed over. A time in the future or before 1970 counts as
    now, and a text that is no IP address or no URL of the web as none.

    Args:
        claimed_by: the product whose file it is, or ``file``.
    """
    kept = uow.session.execute(
        _CLAIM,
        {
            "import_id": import_id,
            "emails": [each.email for each in claims],
            "hows": [each.how.value for each in claims],
            "moments": [each.occurred_at for each in claims],
            "ips": [read_ip(each.ip) for each in claims],
            "urls": [origins.page_of((each.url or "").strip()) for each in claims],
            "wordings": [_wording(each.wording) for each in claims],
            "claimed_by": claimed_by,
            "age": timedelta(days=settings.retention[Retained.IP_ADDRESSES]),
        },
    )
    return len(kept.all())


def take_back(uow: UnitOfWork, import_id: int, *, most: int) -> int:
    """Delete the next claims of an import that is being undone; how many they were.

    The database refuses it for any other import.
    """
    return uow.session.scalar(_TAKE_BACK, {"import_id": import_id, "most": most}) or 0


def _wording(written: str | None) -> str | None:
    # No text of Postgres holds a NUL character.
    return (written or "").replace("\0", "").strip()[:MAX_CLAIMED_WORDING_CHARACTERS] or None


_TAKE_BACK = text("SELECT take_back_claims(:import_id, :most)")
# As for the rows of a chunk, OFFSET 0 makes Postgres look up one person at a time, and by the pair:
# asked for active members there, it read all those of the list for each one. An address that
# is old already is not kept whole until the next upkeep: a file may have a million of them.
_CLAIM = text("""
INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, url, wording,
    claimed_by)
SELECT i.id, m.id, c.how, t.moment,
    CASE WHEN t.moment < now() - :age AND strpos(c.ip, '/') = 0 THEN network_of_ip(c.ip)
        ELSE c.ip END,
    c.url, c.wording, :claimed_by
FROM imports AS i
CROSS JOIN unnest(CAST(:emails AS text[]), CAST(:hows AS text[]), CAST(:moments AS timestamptz[]),
    CAST(:ips AS text[]), CAST(:urls AS text[]), CAST(:wordings AS text[]))
    AS c (email, how, moment, ip, url, wording)
CROSS JOIN LATERAL (SELECT CASE
    WHEN c.moment BETWEEN 'epoch' AND now() THEN c.moment ELSE now() END
) AS t (moment)
CROSS JOIN LATERAL (SELECT id FROM users WHERE email = c.email OFFSET 0) AS u
CROSS JOIN LATERAL (
    SELECT id, status FROM subscriptions
    WHERE user_id = u.id AND list_id = i.list_id OFFSET 0
) AS m
WHERE i.id = :import_id AND m.status = 'active' ORDER BY m.id
ON CONFLICT DO NOTHING
RETURNING 1
""")
