"""Stores people's answers to the question whether a list may record their engagement.

The latest answer counts. A refusal outlives the membership and the person's erasure, which keeps
only an HMAC of each address.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import text

from core.ids import PersonId
from services.engagement.measuring import format_pairs
from services.engagement.records import delete_record
from storage.unit_of_work import UnitOfWork

_FIND_ANSWERS = text("""
SELECT a.list_id, a.user_id, a.is_allowed, a.created_at
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[])) AS r (list_id, user_id)
JOIN engagement_answers AS a ON a.list_id = r.list_id AND a.user_id = r.user_id
""")
_ALLOW = text("""
WITH other AS (
    DELETE FROM engagement_answers
    WHERE list_id = :list_id AND user_id IS NULL
        AND address_hmac = ANY (CAST(:digests AS bytea[]))
)
INSERT INTO engagement_answers AS a (list_id, user_id, is_allowed)
VALUES (:list_id, :user_id, true)
ON CONFLICT (list_id, user_id) DO UPDATE
    SET is_allowed = true, address_hmac = NULL, created_at = clock_timestamp()
    WHERE NOT a.is_allowed
RETURNING 1
""")
_REFUSE = text("""
INSERT INTO engagement_answers AS a (list_id, user_id, address_hmac, is_allowed)
VALUES (:list_id, :user_id, :digest, false)
ON CONFLICT (list_id, user_id) DO UPDATE
    SET is_allowed = false, address_hmac = excluded.address_hmac, created_at = clock_timestamp()
    WHERE a.is_allowed
RETURNING 1
""")
# Copies the refusals of an erased person to the person who now has the address. A person without a
# refusal who joins again has not answered, so other answers don't matter.
_CLAIM = text("""
INSERT INTO engagement_answers (list_id, user_id, address_hmac, is_allowed, created_at)
SELECT a.list_id, :user_id, (array_agg(a.address_hmac))[1], false, max(a.created_at)
FROM subscriptions AS m JOIN engagement_answers AS a
    ON a.list_id = m.list_id AND a.user_id IS NULL
        AND a.address_hmac = ANY (CAST(:digests AS bytea[]))
WHERE m.user_id = :user_id
GROUP BY a.list_id
ON CONFLICT (list_id, user_id) DO UPDATE SET is_allowed = false,
    address_hmac = excluded.address_hmac, created_at = excluded.created_at
""")
_HAS_UNCLAIMED = text("""
SELECT EXISTS (SELECT FROM engagement_answers WHERE list_id = :list_id AND user_id IS NULL)
""")
_COPY_TO_ADDRESS = text("""
INSERT INTO engagement_answers (list_id, address_hmac, is_allowed, created_at)
SELECT list_id, :digest, false, created_at FROM engagement_answers
WHERE user_id = :user_id AND NOT is_allowed
""")
_DELETE_ANSWERS = text("DELETE FROM engagement_answers WHERE user_id = :user_id")
_MOVE_REFUSALS = text("""
INSERT INTO engagement_answers (list_id, user_id, address_hmac, is_allowed, created_at)
SELECT list_id, :to_id, address_hmac, false, created_at FROM engagement_answers
WHERE user_id = :user_id AND NOT is_allowed
ON CONFLICT (list_id, user_id) DO UPDATE SET is_allowed = false,
    address_hmac = excluded.address_hmac, created_at = excluded.created_at
RETURNING list_id
""")
# Finds answers that were stored during an erasure, or that release 1.1.0 kept.
_DETACH_ERASED = text("""
WITH erased AS (
    SELECT a.id, a.is_allowed FROM engagement_answers AS a JOIN users AS u ON u.id = a.user_id
    WHERE u.erased_at IS NOT NULL AND (CAST(:user_id AS bigint) IS NULL OR u.id = :user_id)
), deleted AS (
    DELETE FROM engagement_answers AS a USING erased WHERE a.id = erased.id AND erased.is_allowed
    RETURNING 1
), detached AS (
    UPDATE engagement_answers AS a SET user_id = NULL FROM erased
    WHERE a.id = erased.id AND NOT erased.is_allowed RETURNING 1
)
SELECT (SELECT count(*) FROM deleted) + (SELECT count(*) FROM detached)
""")


class Answer(NamedTuple):
    is_allowed: bool
    at: datetime


def find_answers(
    uow: UnitOfWork, pairs: Collection[tuple[int, int]]
) -> Mapping[tuple[int, int], Answer]:
    """Map pairs of a list id and a user id to the answers. Omit people who haven't answered."""
    if not pairs:
        return {}
    rows = uow.session.execute(_FIND_ANSWERS, format_pairs(pairs))
    return {(list_id, user_id): Answer(*answer) for list_id, user_id, *answer in rows}


def allow(uow: UnitOfWork, list_id: int, person_id: PersonId, digests: Sequence[bytes]) -> bool:
    """Store a yes, and return whether it differs from the stored answer.

    The caller must have locked the active subscription. ``digests``: all HMACs of the address.
    """
    values = {"list_id": list_id, "user_id": person_id, "digests": [*digests]}
    return uow.session.scalar(_ALLOW, values) is not None


def refuse(uow: UnitOfWork, list_id: int, person_id: PersonId, digest: bytes) -> bool:
    """Store a no and delete the person's engagement. Return whether the no is new."""
    values = {"list_id": list_id, "user_id": person_id, "digest": digest}
    is_new = uow.session.scalar(_REFUSE, values) is not None
    delete_record(uow, list_id, person_id)
    return is_new


def claim_refusals(uow: UnitOfWork, person_id: PersonId, digests: Sequence[bytes]) -> None:
    """Apply the refusals of an erased person with the same address to the person's lists."""
    uow.session.execute(_CLAIM, {"user_id": person_id, "digests": [*digests]})


def has_unclaimed_refusals(uow: UnitOfWork, list_id: int) -> bool:
    return bool(uow.session.scalar(_HAS_UNCLAIMED, {"list_id": list_id}))


def detach_refusals(uow: UnitOfWork, person_id: PersonId, digests: Iterable[bytes]) -> None:
    """Keep the refusals for the addresses of a person who is being erased, without the id."""
    for digest in digests:
        uow.session.execute(_COPY_TO_ADDRESS, {"user_id": person_id, "digest": digest})
    uow.session.execute(_DELETE_ANSWERS, {"user_id": person_id})


def move_refusals(uow: UnitOfWork, *, of: PersonId, to: PersonId) -> None:
    """Move refusals to the account that takes over the address."""
    list_ids = uow.session.scalars(_MOVE_REFUSALS, {"user_id": of, "to_id": to}).all()
    uow.session.execute(_DELETE_ANSWERS, {"user_id": of})
    for list_id in sorted(list_ids):
        delete_record(uow, list_id, to)


def detach_erased_people(uow: UnitOfWork, person_id: PersonId | None = None) -> int:
    """Delete each yes of erased people, and remove their ids from refusals.

    Return the number of answers. ``person_id``: one erased person, or ``None`` for all of them.
    """
    return uow.session.scalar(_DETACH_ERASED, {"user_id": person_id}) or 0
