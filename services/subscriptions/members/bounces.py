"""Reads and changes stored bounces, which can turn off the mail that a list sends to a member.

A bounce isn't an opt-out, because the person made no decision. The table ``bounces`` contains an
HMAC of the address, so that a bounce remains after the member is removed or erased.

When the list's mail to a member is turned on again, a database trigger sets ``lifted_at``. When a
later mail reaches the member, ``ended_at`` is set for soft bounces. A bounce is in effect while
both are NULL. Code that acts without the person's consent must call ``claim_bounces`` before it
adds the person to a list or turns on the mail.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import text

from core.ids import PersonId
from models import User
from services.subscriptions.members.opt_out_checks import compute_address_digests
from storage.unit_of_work import UnitOfWork

# How long a list's owner must wait before turning mail on a second time for a bounced member.
OWNER_LIFT_PERIOD = timedelta(days=30)
# The SQL condition that a bounce is in effect. ``IS_IN_EFFECT`` equals the condition of the partial
# index ``ix_bounces_counting``, so that Postgres can use the index.
IS_IN_EFFECT = "ended_at IS NULL AND lifted_at IS NULL"

_CLAIM_BOUNCES = text(f"""
WITH claimed AS (
    UPDATE bounces SET user_id = :user_id
    WHERE list_id = :list_id AND address_hmac = ANY (CAST(:digests AS bytea[]))
        AND user_id IS NULL AND {IS_IN_EFFECT}
)
SELECT EXISTS (
    SELECT FROM bounces
    WHERE list_id = :list_id
        AND (user_id = :user_id OR address_hmac = ANY (CAST(:digests AS bytea[])))
        AND {IS_IN_EFFECT} AND stopped_at IS NOT NULL
)
""")  # noqa: S608 - no input
_LIFT_BOUNCES = text(f"""
WITH locked AS (
    SELECT list_id, address_hmac, mailing_id FROM bounces
    WHERE list_id = :list_id
        AND (user_id = :user_id OR address_hmac = ANY (CAST(:digests AS bytea[])))
        AND {IS_IN_EFFECT}
    ORDER BY 1, 2, 3 FOR UPDATE
)
UPDATE bounces AS b SET lifted_at = clock_timestamp(), is_lifted_by_owner = :by_owner FROM locked
WHERE b.list_id = locked.list_id AND b.address_hmac = locked.address_hmac
    AND b.mailing_id = locked.mailing_id
""")  # noqa: S608 - no input
_HAS_OWNER_LIFTED = text("""
SELECT EXISTS (
    SELECT FROM bounces WHERE list_id = :list_id AND user_id = :user_id
        AND is_lifted_by_owner AND lifted_at > now() - CAST(:period AS interval)
)
""")
_COPY_BOUNCES = text("""
INSERT INTO bounces (list_id, address_hmac, mailing_id, user_id, is_hard, status, mailing_at,
    bounced_at, stopped_at, ended_at, lifted_at, is_lifted_by_owner, created_at)
SELECT :to_list_id, address_hmac, mailing_id, user_id, is_hard, status, mailing_at, bounced_at,
    stopped_at, ended_at, lifted_at, is_lifted_by_owner, created_at
FROM bounces WHERE list_id = :list_id AND user_id = :user_id
ON CONFLICT DO NOTHING
""")
_RELEASE_BOUNCES = text("UPDATE bounces SET user_id = NULL WHERE user_id = :user_id")
# Sort by the primary key, so that Postgres uses the primary key's index to find one of the list's
# bounces. Without the sorting, Postgres might read the whole table ``bounces``.
_FIND_ANY_BOUNCE = text("""
SELECT 1 FROM bounces WHERE list_id = :list_id
ORDER BY list_id, address_hmac, mailing_id LIMIT 1
""")


def claim_bounces(uow: UnitOfWork, list_id: int, person: User) -> bool:
    """Return whether the list must not mail a person, because mails to the address bounced.

    The function adds the person's user id to bounces without one, because the trigger that sets
    ``lifted_at`` finds bounces by user id.
    """
    values = _build_person_parameters(uow, list_id, person)
    return bool(uow.session.scalar(_CLAIM_BOUNCES, values))


def lift_bounces(uow: UnitOfWork, list_id: int, person: User, *, by_owner: bool = False) -> None:
    values = _build_person_parameters(uow, list_id, person)
    uow.session.execute(_LIFT_BOUNCES, values | {"by_owner": by_owner})


def has_owner_lifted(uow: UnitOfWork, list_id: int, person_id: PersonId) -> bool:
    """Return whether, in the last 30 days, the owner turned mail on for the member."""
    values = {"list_id": list_id, "user_id": person_id, "period": OWNER_LIFT_PERIOD}
    return bool(uow.session.scalar(_HAS_OWNER_LIFTED, values))


def copy_bounces(uow: UnitOfWork, list_id: int, person_id: PersonId, *, to_list_id: int) -> None:
    values = {"list_id": list_id, "user_id": person_id, "to_list_id": to_list_id}
    uow.session.execute(_COPY_BOUNCES, values)


def release_bounces(uow: UnitOfWork, person_id: PersonId) -> None:
    """Remove the person's user id from all bounces.

    Called when the address changes, because mail may reach the new address.
    """
    uow.session.execute(_RELEASE_BOUNCES, {"user_id": person_id})


def has_bounces(uow: UnitOfWork, list_id: int) -> bool:
    return uow.session.scalar(_FIND_ANY_BOUNCE, {"list_id": list_id}) is not None


def build_no_bounce_condition(member: str) -> str:
    """Build a condition on ``member``, an alias of ``subscriptions``."""
    return f"""NOT EXISTS (
        SELECT FROM bounces AS b
        WHERE b.list_id = {member}.list_id AND b.user_id = {member}.user_id
            AND b.ended_at IS NULL AND b.lifted_at IS NULL AND b.stopped_at IS NOT NULL)"""


def build_bounce_query(list_id: str, condition: str) -> str:
    """Use ``OFFSET 0`` to force index lookups (see ``imports.judge_statements``)."""
    stops = f"{IS_IN_EFFECT} AND stopped_at IS NOT NULL"
    return f"SELECT FROM bounces WHERE list_id = {list_id} AND {stops} AND {condition} OFFSET 0"


def _build_person_parameters(uow: UnitOfWork, list_id: int, person: User) -> dict[str, Any]:
    digests = compute_address_digests(uow.settings.keyring, person.email)
    return {"list_id": list_id, "user_id": person.id, "digests": digests}
