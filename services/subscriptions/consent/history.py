"""The consent history of a person: all consent entries and claims about them."""

from collections.abc import Sequence

from sqlalchemy import text

from models import Subscription
from storage.unit_of_work import UnitOfWork

# A person who comes and goes all day has more; the newest are carried to another list.
_MAX_CARRIED = 1_000
_ALL_ROWS = 2**31 - 1
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


def carry_over(uow: UnitOfWork, leaving: Subscription, there: Subscription) -> None:
    """Let a member's record on another list show how they agreed to this one.

    Each entry and claim is carried once, however often the member is moved back and forth.
    """
    values = {"user_id": leaving.user_id, "leaving_id": leaving.id, "there_id": there.id}
    values |= {"list_id": leaving.list_id, "to_list_id": there.list_id, "most": _MAX_CARRIED}
    uow.session.execute(_CARRY_ENTRIES, values)
    uow.session.execute(_CARRY_CLAIMS, values)


_ERASE = text("SELECT erase_consent(CAST(:people AS bigint[]), :most)")


def erase(uow: UnitOfWork, people: Sequence[int], *, most: int = _ALL_ROWS) -> int:
    """Delete what shows how erased or purged people came onto lists; how many rows they were.

    The wordings of lists that they owned are blanked. The database leaves the rows of other people
    alone, whomever this names.
    """
    return uow.session.scalar(_ERASE, {"people": list(people), "most": most}) or 0
