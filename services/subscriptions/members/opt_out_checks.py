"""Checks of opt-outs: whether a person has refused a list, or mail from the list.

All code that asks about opt-outs is here or uses a function of this module. Adding or restoring one
member, transferring a member, enabling mail and sending a list's mail call ``find_opt_outs``.

Work on many members can't look up one person at a time. Their SQL statements contain a condition
or a query of this module:

- ``imports.judge_statements`` judges the rows of a chunk (``build_opt_out_query``).
- ``bulk_actions.batches`` undoes a bulk action (``build_no_opt_out_condition``), and skips people
  who left before they confirmed (``HAS_LEFT``).
- ``export_sheets`` exports members (``HAS_LEFT``, ``HAS_NO_MAIL``) and the recipients of a mail
  (``has_opt_out_on``, ``find_opted_out_digests``).
- ``unsubscribe``, ``members`` and ``opt_outs`` find subscriptions that don't show an opt-out yet
  (``HAS_LEFT``, ``HAS_NO_MAIL``).

``imports.undo`` needs no check, because it never makes a member active and never enables mail.

Deny lists are checked by ``deny_lists.find_denied``, for one address or many.
"""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select, text

from core.keyring import Keyring
from models import OptOut, OptOutKind, Subscription, SubscriptionStatus, User
from storage.unit_of_work import UnitOfWork

# Keep an old key in the keyring for as long as opt-outs of erased people must be recognised.
_PURPOSE = "opt-out"


def find_opt_outs(uow: UnitOfWork, list_id: int, person: User) -> set[OptOutKind]:
    """Return the person's opt-outs on this list. The caller decides whether an opt-out matters."""
    query = select(OptOut.kind).where(
        OptOut.list_id == list_id, is_opt_out_of(uow.settings.keyring, person)
    )
    return {OptOutKind(kind) for kind in uow.session.scalars(query)}


def is_opt_out_of(keyring: Keyring, person: User) -> ColumnElement[bool]:
    """The condition that an opt-out belongs to the person or to their address."""
    digests = address_digests(keyring, person.email)
    return or_(OptOut.user_id == person.id, OptOut.address_hmac.in_(digests))


def address_digests(keyring: Keyring, address: str) -> list[bytes]:
    """Return the digests under which an opt-out of this address may be stored: one per key."""
    return create_address_digester(keyring)(address)


def create_address_digester(keyring: Keyring) -> Callable[[str], list[bytes]]:
    """Return a function like ``address_digests`` that is fast for many addresses."""
    signer = keyring.signer(_PURPOSE)
    return lambda address: signer.digests(address.encode())


def address_digest(keyring: Keyring, address: str) -> bytes:
    """Return the digest under which a new opt-out of this address is stored."""
    return keyring.signer(_PURPOSE).digest(address.encode())


def _has_opt_out(kind: OptOutKind, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition that the person of a subscription has an opt-out of this kind."""
    return exists().where(
        OptOut.list_id == Subscription.list_id,
        OptOut.user_id == Subscription.user_id,
        OptOut.kind == kind,
        *conditions,
    )


# The person has left the list, but the subscription's status doesn't show it yet. A pending person
# may sign up again after an opt-out, so only an opt-out after the last change counts.
HAS_LEFT = or_(
    and_(Subscription.status == SubscriptionStatus.ACTIVE, _has_opt_out(OptOutKind.LIST)),
    and_(
        Subscription.status == SubscriptionStatus.PENDING,
        _has_opt_out(OptOutKind.LIST, OptOut.created_at > Subscription.updated_at),
    ),
)
# The person has disabled mail, but the subscription doesn't show it yet.
HAS_NO_MAIL = and_(Subscription.email_enabled, _has_opt_out(OptOutKind.EMAIL))


def find_unsettled_values(uow: UnitOfWork, record: Subscription) -> dict[str, Any]:
    """Return the new values of the subscription's columns that contradict an opt-out."""
    query = select(HAS_LEFT, HAS_NO_MAIL).where(Subscription.id == record.id)
    has_left, has_no_mail = uow.session.execute(query).one()
    status = {"status": SubscriptionStatus.UNSUBSCRIBED} if has_left else {}
    return status | ({"email_enabled": False} if has_no_mail else {})


def has_opt_out_on(list_id: int) -> ColumnElement[bool]:
    """The condition that the person of a subscription has any opt-out on this list."""
    return exists().where(OptOut.list_id == list_id, OptOut.user_id == Subscription.user_id)


def find_opted_out_digests(
    connection: Connection, list_id: int, digests: Collection[bytes]
) -> set[bytes]:
    """Return the digests that belong to an opt-out of the list."""
    values = {"list_id": list_id, "digests": list(digests)}
    return {bytes(digest) for (digest,) in connection.execute(_FIND_DIGESTS, values)}


_FIND_DIGESTS = text(
    "SELECT address_hmac FROM opt_outs WHERE list_id = :list_id AND address_hmac = ANY(:digests)"
)


def build_no_opt_out_condition(member: str, kind: OptOutKind | None = None) -> str:
    """The SQL condition that a subscriber has no opt-out, or no opt-out of this kind.

    ``member`` is the alias of the table ``subscriptions``.
    """
    of_kind = f" AND o.kind = '{kind}'" if kind else ""
    return f"""NOT EXISTS (
        SELECT FROM opt_outs AS o
        WHERE o.list_id = {member}.list_id AND o.user_id = {member}.user_id{of_kind})"""


def build_opt_out_query(list_id: str, condition: str) -> str:
    """Return the SQL query for the kinds of a list's opt-outs that meet the condition.

    OFFSET 0 makes Postgres look up one row at a time. ``imports.judge_statements`` has the reason.
    """
    return f"SELECT kind FROM opt_outs WHERE list_id = {list_id} AND {condition} OFFSET 0"  # noqa: S608


def has_opt_outs(uow: UnitOfWork, list_id: int) -> bool:
    """Return whether the list has any opt-out."""
    return bool(uow.session.scalar(_COUNT_FIRST, {"list_id": list_id}))


# ORDER BY makes Postgres use an index. Otherwise, if most opt-outs belong to another list,
# Postgres would search the whole table for an opt-out of this list.
_COUNT_FIRST = text("""
SELECT count(*) FROM (
    SELECT 1 FROM opt_outs WHERE list_id = :list_id ORDER BY user_id LIMIT 1
) AS o
""")
