"""Stored bounces, which keep mail turned off until they are lifted.

A bounce isn't an opt-out, because the person made no decision. The table ``bounces`` contains an
HMAC of the address, so that a bounce remains when the member is removed or erased.

A bounce is in effect until it is lifted or ends. When a member's mail is turned on, a database
trigger lifts the member's bounces. Code that adds a member, or that turns mail on without the
person's consent, must call ``claim_bounces``.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import text

from models import User
from services.subscriptions.members.opt_out_checks import compute_address_digests
from storage.unit_of_work import UnitOfWork

# A list's owner may lift the bounces of each member only once in this period.
OWNER_LIFT_PERIOD = timedelta(days=30)
# The SQL condition for bounces that are in effect. A partial index has the same condition.
COUNTS = "ended_at IS NULL AND lifted_at IS NULL"

_CLAIM_BOUNCES = text(f"""
WITH claimed AS (
    UPDATE bounces SET user_id = :user_id
    WHERE list_id = :list_id AND address_hmac = ANY (CAST(:digests AS bytea[]))
        AND user_id IS NULL AND {COUNTS}
)
SELECT EXISTS (
    SELECT FROM bounces
    WHERE list_id = :list_id
        AND (user_id = :user_id OR address_hmac = ANY (CAST(:digests AS bytea[])))
        AND {COUNTS} AND stopped_at IS NOT NULL
)
""")  # noqa: S608 - no input
_LIFT_BOUNCES = text(f"""
WITH locked AS (
    SELECT list_id, address_hmac, mailing_id FROM bounces
    WHERE list_id = :list_id
        AND (user_id = :user_id OR address_hmac = ANY (CAST(:digests AS bytea[])))
        AND {COUNTS}
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
# With the order of the primary key, Postgres reads one row by the key. Otherwise, Postgres may read
# the whole table to find any bounce of the list.
_FIND_ANY_BOUNCE = text("""
SELECT 1 FROM bounces WHERE list_id = :list_id
ORDER BY list_id, address_hmac, mailing_id LIMIT 1
""")


def claim_bounces(uow: UnitOfWork, list_id: int, person: User) -> bool:
    """Return whether the list must not mail a person because of a bounce.

    If bounces of the person's address are linked to nobody, for example after an erasure, the
    function links the bounces to the person, so that the person or the owner can lift the bounces.
    """
    values = _build_person_parameters(uow, list_id, person)
    return bool(uow.session.scalar(_CLAIM_BOUNCES, values))


def lift_bounces(uow: UnitOfWork, list_id: int, person: User, *, by_owner: bool = False) -> None:
    """Lift a person's bounces when the person or the list's owner turns mail on."""
    values = _build_person_parameters(uow, list_id, person)
    uow.session.execute(_LIFT_BOUNCES, values | {"by_owner": by_owner})


def has_owner_lifted(uow: UnitOfWork, list_id: int, user_id: int) -> bool:
    """Return whether the list's owner lifted a bounce of the member in the last 30 days."""
    values = {"list_id": list_id, "user_id": user_id, "period": OWNER_LIFT_PERIOD}
    return bool(uow.session.scalar(_HAS_OWNER_LIFTED, values))


def copy_bounces(uow: UnitOfWork, list_id: int, user_id: int, *, to_list_id: int) -> None:
    """Copy a member's bounces to the list to which the member is transferred."""
    values = {"list_id": list_id, "user_id": user_id, "to_list_id": to_list_id}
    uow.session.execute(_COPY_BOUNCES, values)


def release_bounces(uow: UnitOfWork, user_id: int) -> None:
    """Unlink a person from all bounces, because the person changes the address."""
    uow.session.execute(_RELEASE_BOUNCES, {"user_id": user_id})


def has_bounces(uow: UnitOfWork, list_id: int) -> bool:
    """Return whether any bounce is stored for the list."""
    return uow.session.scalar(_FIND_ANY_BOUNCE, {"list_id": list_id}) is not None


def build_no_bounce_condition(member: str) -> str:
    """Build an SQL condition for members without a bounce that turned mail off.

    ``member``: the alias of ``subscriptions`` in the SQL statement that contains the condition.
    """
    return f"""NOT EXISTS (
        SELECT FROM bounces AS b
        WHERE b.list_id = {member}.list_id AND b.user_id = {member}.user_id
            AND b.ended_at IS NULL AND b.lifted_at IS NULL AND b.stopped_at IS NOT NULL)"""


def build_bounce_query(list_id: str, condition: str) -> str:
    """Build an SQL query for the bounces on a list that have turned mail off.

    ``OFFSET 0`` makes Postgres look up each bounce in an index (see ``imports.judge_statements``).

    ``condition``: an SQL condition that the bounces must also match.
    """
    stops = f"{COUNTS} AND stopped_at IS NOT NULL"
    return f"SELECT FROM bounces WHERE list_id = {list_id} AND {stops} AND {condition} OFFSET 0"


def _build_person_parameters(uow: UnitOfWork, list_id: int, person: User) -> dict[str, Any]:
    digests = compute_address_digests(uow.settings.keyring, person.email)
    return {"list_id": list_id, "user_id": person.id, "digests": digests}
