"""Checks whether a person has opted out of a list, or of the mail of a list.

All code that checks opt-outs is in ``opt_out_checks`` or uses ``opt_out_checks``. Code that adds,
restores or transfers one member, enables mail or sends a list's mail calls ``find_opt_outs``.

Code that works on many members can't look up one person at a time. Such modules therefore use a
condition or a query of ``opt_out_checks`` in their SQL statements:

- ``imports.judge_statements`` finds the opt-outs of the people in an import with
  ``build_opt_out_query``.
- ``bulk_actions.batches`` checks members when it undoes a bulk action
  (``build_no_opt_out_condition``), and skips people who left before they confirmed (``HAS_LEFT``).
- ``export_sheets`` checks the members that it exports (``HAS_LEFT``, ``HAS_NO_MAIL``) and the
  recipients of a mail (``has_opt_out_on``, ``find_opted_out_digests``).
- ``unsubscribe``, ``members`` and ``opt_outs`` find subscriptions that don't show an opt-out yet
  (``HAS_LEFT``, ``HAS_NO_MAIL``).

``imports.undo`` checks no opt-outs, because undoing an import never makes a member active and never
enables mail.

``deny_lists.find_denied`` checks deny lists, for one address or for many addresses.
"""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select, text

from core.keyring import Keyring
from models import OptOut, OptOutKind, Subscription, SubscriptionStatus, User
from storage.unit_of_work import UnitOfWork

# Digests with this purpose identify the opt-outs of erased people. If the operator removes a key
# from the keyring, opt-outs with digests of the removed key no longer apply.
_PURPOSE = "opt-out"
_FIND_DIGESTS = text(
    "SELECT address_hmac FROM opt_outs WHERE list_id = :list_id AND address_hmac = ANY(:digests)"
)
# ORDER BY makes Postgres find an opt-out of the list by an index. Without ORDER BY, Postgres would
# search the whole table ``opt_outs`` if most opt-outs belong to other lists.
_COUNT_FIRST = text("""
SELECT count(*) FROM (
    SELECT 1 FROM opt_outs WHERE list_id = :list_id ORDER BY user_id LIMIT 1
) AS o
""")


def find_opt_outs(uow: UnitOfWork, list_id: int, person: User) -> set[OptOutKind]:
    """Return the kinds of all opt-outs that the person has on the list."""
    query = select(OptOut.kind).where(
        OptOut.list_id == list_id, is_opt_out_of(uow.settings.keyring, person)
    )
    return {OptOutKind(kind) for kind in uow.session.scalars(query)}


def is_opt_out_of(keyring: Keyring, person: User) -> ColumnElement[bool]:
    """Build the SQL condition that an opt-out belongs to the person or to the person's address."""
    digests = compute_address_digests(keyring, person.email)
    return or_(OptOut.user_id == person.id, OptOut.address_hmac.in_(digests))


def compute_address_digests(keyring: Keyring, address: str) -> list[bytes]:
    """Return one digest of the address per key, because an opt-out may use any of the keys."""
    return create_address_digester(keyring)(address)


def create_address_digester(keyring: Keyring) -> Callable[[str], list[bytes]]:
    """Return a function that computes the digests of many addresses with one signer."""
    signer = keyring.signer(_PURPOSE)
    return lambda address: signer.digests(address.encode())


def compute_address_digest(keyring: Keyring, address: str) -> bytes:
    """Return the digest of the address in a new opt-out."""
    return keyring.signer(_PURPOSE).digest(address.encode())


def _has_opt_out(kind: OptOutKind, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Build the SQL condition that a subscriber has an opt-out of the kind ``kind`` on the list."""
    return exists().where(
        OptOut.list_id == Subscription.list_id,
        OptOut.user_id == Subscription.user_id,
        OptOut.kind == kind,
        *conditions,
    )


# The SQL condition that a person has left the list, but the status of the subscription doesn't show
# the opt-out yet. A person with a pending subscription may have signed up again after an opt-out.
# For a pending subscription, only an opt-out after the last change of the subscription counts.
HAS_LEFT = or_(
    and_(Subscription.status == SubscriptionStatus.ACTIVE, _has_opt_out(OptOutKind.LIST)),
    and_(
        Subscription.status == SubscriptionStatus.PENDING,
        _has_opt_out(OptOutKind.LIST, OptOut.created_at > Subscription.updated_at),
    ),
)
# The SQL condition that a person has disabled mail, but the subscription doesn't show the opt-out
# yet.
HAS_NO_MAIL = and_(Subscription.email_enabled, _has_opt_out(OptOutKind.EMAIL))


def find_opt_out_changes(uow: UnitOfWork, record: Subscription) -> dict[str, Any]:
    """Return new values for those columns of a subscription that contradict an opt-out."""
    query = select(HAS_LEFT, HAS_NO_MAIL).where(Subscription.id == record.id)
    has_left, has_no_mail = uow.session.execute(query).one()
    status = {"status": SubscriptionStatus.UNSUBSCRIBED} if has_left else {}
    return status | ({"email_enabled": False} if has_no_mail else {})


def has_opt_out_on(list_id: int) -> ColumnElement[bool]:
    """Build the SQL condition that a subscriber has any opt-out on the list ``list_id``."""
    return exists().where(OptOut.list_id == list_id, OptOut.user_id == Subscription.user_id)


def find_opted_out_digests(
    connection: Connection, list_id: int, digests: Collection[bytes]
) -> set[bytes]:
    """Return the digests in ``digests`` that belong to an opt-out on the list."""
    values = {"list_id": list_id, "digests": list(digests)}
    return {bytes(digest) for (digest,) in connection.execute(_FIND_DIGESTS, values)}


def build_no_opt_out_condition(member: str, kind: OptOutKind | None = None) -> str:
    """Build the SQL condition that a subscriber has no opt-out, or no opt-out of the kind ``kind``.

    ``member``: the alias of the table ``subscriptions`` in the SQL statement.
    """
    of_kind = f" AND o.kind = '{kind}'" if kind else ""
    return f"""NOT EXISTS (
        SELECT FROM opt_outs AS o
        WHERE o.list_id = {member}.list_id AND o.user_id = {member}.user_id{of_kind})"""


def build_opt_out_query(list_id: str, condition: str) -> str:
    """Build the SQL query for the kinds of a list's opt-outs that meet a condition.

    OFFSET 0 makes Postgres look up one row at a time. ``imports.judge_statements`` explains why.
    """
    return f"SELECT kind FROM opt_outs WHERE list_id = {list_id} AND {condition} OFFSET 0"  # noqa: S608


def has_opt_outs(uow: UnitOfWork, list_id: int) -> bool:
    """Return whether any person has an opt-out on the list."""
    return bool(uow.session.scalar(_COUNT_FIRST, {"list_id": list_id}))
