"""Copies and deletes a person's consent entries and consent claims."""

from collections.abc import Sequence

from sqlalchemy import text

from models import Subscription
from storage.unit_of_work import UnitOfWork

# The maximum number of consent entries that a transfer copies for a member, newest first.
_MAX_COPIED_ENTRIES = 1_000
_ALL_ROWS = 2**31 - 1
_COPY_ENTRIES = text("""
WITH of_member AS (
    SELECT how, occurred_at, ip, url, browser, wording_version,
        coalesce(of_list_id, list_id) AS of_list_id, import_id, origin, engagement_wording
    FROM consent_entries WHERE user_id = :user_id AND list_id = :list_id
    ORDER BY id DESC LIMIT :most
), source AS (
    SELECT * FROM of_member
    UNION ALL
    SELECT 'import', imported_at, NULL, NULL, NULL, NULL, list_id, import_id, NULL,
        NULL
    FROM subscriptions WHERE id = :source_id AND import_id IS NOT NULL
)
INSERT INTO consent_entries (list_id, user_id, how, occurred_at, ip, url, browser, wording_version,
    of_list_id, import_id, origin, engagement_wording)
SELECT :to_list_id, :user_id, how, occurred_at, ip, url, browser, wording_version, of_list_id,
    import_id, origin, engagement_wording
FROM source AS s
-- Skip entries about the target list, and entries that an earlier transfer copied.
WHERE of_list_id <> :to_list_id AND NOT EXISTS (
    SELECT FROM consent_entries AS e WHERE e.user_id = :user_id AND e.list_id = :to_list_id
        AND e.of_list_id = s.of_list_id AND e.how = s.how AND e.occurred_at = s.occurred_at
        AND (e.engagement_wording IS NULL) = (s.engagement_wording IS NULL)
)
ORDER BY occurred_at
""")
_COPY_CLAIMS = text("""
INSERT INTO consent_claims (import_id, subscription_id, how, occurred_at, ip, url, wording,
    claimed_by, of_list_id, origin)
SELECT import_id, :target_id, how, occurred_at, ip, url, wording, claimed_by,
    coalesce(of_list_id, :list_id), origin
FROM consent_claims WHERE subscription_id = :source_id
ON CONFLICT DO NOTHING
""")


_ERASE = text("SELECT erase_consent(CAST(:people AS bigint[]), :most)")


def copy_history(uow: UnitOfWork, source: Subscription, target: Subscription) -> None:
    """Copy consent entries and claims to the target of a transfer, unless copied earlier."""
    values = {
        "user_id": source.user_id,
        "source_id": source.id,
        "target_id": target.id,
        "list_id": source.list_id,
        "to_list_id": target.list_id,
        "most": _MAX_COPIED_ENTRIES,
    }
    uow.session.execute(_COPY_ENTRIES, values)
    uow.session.execute(_COPY_CLAIMS, values)


def erase_history(uow: UnitOfWork, people: Sequence[int], *, limit: int = _ALL_ROWS) -> int:
    """Delete consent entries and claims. Blank the wordings of lists that the people owned."""
    return uow.session.scalar(_ERASE, {"people": list(people), "most": limit}) or 0
