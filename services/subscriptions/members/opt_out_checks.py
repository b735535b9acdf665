"""Checks whether a person has opted out of a list or of a list's mail.

Code that checks opt-outs must use the functions and SQL conditions in ``opt_out_checks``. Call
``find_opt_outs`` before adding, restoring or transferring one member, enabling mail, or sending a
list's mail.

Modules that change many members at once use SQL conditions and queries from ``opt_out_checks``:

- ``imports.judge_statements`` finds the opt-outs of imported people with ``build_opt_out_query``.
- ``bulk_actions.batches`` checks members before restoring them (``build_no_opt_out_condition``),
  and skips pending members who have unsubscribed (``HAS_LEFT``).
- ``export_sheets`` checks exported members (``HAS_LEFT``, ``HAS_NO_MAIL``), and the recipients in a
  roster (``has_opt_out_on``, ``find_opted_out_digests``).
- ``unsubscribe``, ``members`` and ``opt_outs`` find subscriptions that contradict an opt-out
  (``HAS_LEFT``, ``HAS_NO_MAIL``).

Undoing an import needs no check for opt-outs, because ``imports.undo`` never makes a member active
and never enables mail.

Deny lists are checked by ``deny_lists.find_denied``.
"""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select, text

from core.keyring import Keyring
from models import OptOut, OptOutKind, Subscription, SubscriptionStatus, User
from storage.unit_of_work import UnitOfWork

# The purpose for which the keyring signs the address digests in opt-outs. Address digests identify
# the opt-outs of erased people. An opt-out without a person's id no longer applies after the
# operator has removed the digest's key from the keyring.
_PURPOSE = "opt-out"
_FIND_DIGESTS = text(
    "SELECT address_hmac FROM opt_outs WHERE list_id = :list_id AND address_hmac = ANY(:digests)"
)
# ORDER BY makes Postgres find one of the list's opt-outs with an index. Without ORDER BY, Postgres
# would read the whole table ``opt_outs`` if few opt-outs belong to the list.
_COUNT_FIRST = text("""
SELECT count(*) FROM (
    SELECT 1 FROM opt_outs WHERE list_id = :list_id ORDER BY user_id LIMIT 1
) AS o
""")


def find_opt_outs(uow: UnitOfWork, list_id: int, person: User) -> set[OptOutKind]:
    """Return the kinds of the person's opt-outs from the list."""
    query = select(OptOut.kind).where(
        OptOut.list_id == list_id, is_opt_out_of(uow.settings.keyring, person)
    )
    return {OptOutKind(kind) for kind in uow.session.scalars(query)}


def is_opt_out_of(keyring: Keyring, person: User) -> ColumnElement[bool]:
    """Build the SQL condition for opt-outs with the person's id or current address."""
    digests = compute_address_digests(keyring, person.email)
    return or_(OptOut.user_id == person.id, OptOut.address_hmac.in_(digests))


def compute_address_digests(keyring: Keyring, address: str) -> list[bytes]:
    """Return a digest of the address for each key in the keyring."""
    return create_address_digester(keyring)(address)


def create_address_digester(keyring: Keyring) -> Callable[[str], list[bytes]]:
    """Return a function that computes the digests of an address, and that reuses one signer."""
    signer = keyring.signer(_PURPOSE)
    return lambda address: signer.digests(address.encode())


def compute_address_digest(keyring: Keyring, address: str) -> bytes:
    """Return the digest of the address that a new opt-out stores."""
    return keyring.signer(_PURPOSE).digest(address.encode())


def _has_opt_out(kind: OptOutKind, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Build the SQL condition that a subscriber has an opt-out of this kind from the list."""
    return exists().where(
        OptOut.list_id == Subscription.list_id,
        OptOut.user_id == Subscription.user_id,
        OptOut.kind == kind,
        *conditions,
    )


# The SQL condition for a person who has opted out of the list, but whose subscription still has the
# status ``active`` or ``pending``. A person with the status ``pending`` may have signed up again
# after an opt-out. For a person with the status ``pending``, only an opt-out that is newer than
# ``updated_at`` counts.
HAS_LEFT = or_(
    and_(Subscription.status == SubscriptionStatus.ACTIVE, _has_opt_out(OptOutKind.LIST)),
    and_(
        Subscription.status == SubscriptionStatus.PENDING,
        _has_opt_out(OptOutKind.LIST, OptOut.created_at > Subscription.updated_at),
    ),
)
# The SQL condition for a person who has opted out of the list's mail, but whose subscription still
# has mail enabled.
HAS_NO_MAIL = and_(Subscription.email_enabled, _has_opt_out(OptOutKind.EMAIL))


def find_opt_out_changes(uow: UnitOfWork, record: Subscription) -> dict[str, Any]:
    """Return new values for the columns of a subscription that contradict an opt-out."""
    query = select(HAS_LEFT, HAS_NO_MAIL).where(Subscription.id == record.id)
    has_left, has_no_mail = uow.session.execute(query).one()
    status = {"status": SubscriptionStatus.UNSUBSCRIBED} if has_left else {}
    return status | ({"email_enabled": False} if has_no_mail else {})


def has_opt_out_on(list_id: int) -> ColumnElement[bool]:
    """Build the SQL condition that a subscriber has any opt-out from the list."""
    return exists().where(OptOut.list_id == list_id, OptOut.user_id == Subscription.user_id)


def find_opted_out_digests(
    connection: Connection, list_id: int, digests: Collection[bytes]
) -> set[bytes]:
    """Return all given address digests that belong to an opt-out from the list."""
    values = {"list_id": list_id, "digests": list(digests)}
    return {bytes(digest) for (digest,) in connection.execute(_FIND_DIGESTS, values)}


def build_no_opt_out_condition(member: str, kind: OptOutKind | None = None) -> str:
    """Build the SQL condition that a subscriber has no opt-out, or no opt-out of one kind.

    ``member``: the alias of the table ``subscriptions`` in the SQL statement.
    """
    of_kind = f" AND o.kind = '{kind}'" if kind else ""
    return f"""NOT EXISTS (
        SELECT FROM opt_outs AS o
        WHERE o.list_id = {member}.list_id AND o.user_id = {member}.user_id{of_kind})"""


def build_opt_out_query(list_id: str, condition: str) -> str:
    """Build the SQL query for the kinds of all opt-outs from a list that meet a condition.

    OFFSET 0 makes Postgres look up one opt-out at a time, as ``imports.judge_statements`` explains.
    """
    return f"SELECT kind FROM opt_outs WHERE list_id = {list_id} AND {condition} OFFSET 0"  # noqa: S608


def has_opt_outs(uow: UnitOfWork, list_id: int) -> bool:
    """Return whether anybody has opted out of the list or the list's mail."""
    return bool(uow.session.scalar(_COUNT_FIRST, {"list_id": list_id}))
