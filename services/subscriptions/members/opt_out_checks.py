"""Checks whether a person has opted out of a list or of a list's mail.

All code that checks opt-outs must use this module. Code that adds, restores or transfers a single
member, enables mail, or sends a reminder must first call ``find_opt_outs``, unless it deletes the
opt-outs. Code for many members uses the SQL conditions. The undo of an import needs no check,
because it never activates members or enables mail.
"""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    exists,
    literal,
    or_,
    select,
    text,
    union_all,
)

from core.keyring import Keyring
from models import (
    AddressOptOut,
    MailingList,
    OptOut,
    OptOutKind,
    Subscription,
    SubscriptionStatus,
    User,
)
from storage.unit_of_work import UnitOfWork

# The name of the purpose of the keys that hash e-mail addresses for opt-outs. An erased person's
# opt-out contains only a digest of the address, and has no effect after the operator has removed
# the digest's key from the keyring.
_PURPOSE = "opt-out"
_FIND_DIGESTS = text("""
SELECT address_hmac FROM opt_outs WHERE list_id = :list_id AND address_hmac = ANY(:digests)
UNION ALL
SELECT address_hmac FROM address_opt_outs
WHERE user_id = (SELECT user_id FROM lists WHERE id = :list_id)
    AND address_hmac = ANY(:digests) AND :list_id = ANY(list_ids)
""")
_HAS_ADDRESS_OPT_OUTS = text("""
SELECT EXISTS (
    SELECT FROM address_opt_outs WHERE user_id = (SELECT user_id FROM lists WHERE id = :list_id)
)
""")
# ORDER BY makes Postgres use an index instead of reading the whole table ``opt_outs``.
_COUNT_FIRST = text("""
SELECT count(*) FROM (
    SELECT 1 FROM opt_outs WHERE list_id = :list_id ORDER BY user_id LIMIT 1
) AS o
""")


def find_opt_outs(uow: UnitOfWork, list_id: int, person: User) -> set[OptOutKind]:
    keyring = uow.settings.keyring
    query = union_all(
        select(OptOut.kind).where(OptOut.list_id == list_id, is_opt_out_of(keyring, person)),
        select(literal(OptOutKind.LIST.value))
        .join_from(AddressOptOut, MailingList, applies_to_list())
        .where(MailingList.id == list_id, is_address_opt_out_of(keyring, person)),
    )
    return {OptOutKind(kind) for kind in uow.session.scalars(query)}


def is_opt_out_of(keyring: Keyring, person: User) -> ColumnElement[bool]:
    digests = compute_address_digests(keyring, person.email)
    return or_(OptOut.user_id == person.id, OptOut.address_hmac.in_(digests))


def is_address_opt_out_of(keyring: Keyring, person: User) -> ColumnElement[bool]:
    return AddressOptOut.address_hmac.in_(compute_address_digests(keyring, person.email))


def applies_to_list() -> ColumnElement[bool]:
    return and_(
        AddressOptOut.user_id == MailingList.user_id,
        AddressOptOut.list_ids.any_() == MailingList.id,
    )


def compute_address_digests(keyring: Keyring, address: str) -> list[bytes]:
    """Return a digest for each key in the keyring."""
    return create_address_digester(keyring)(address)


def create_address_digester(keyring: Keyring) -> Callable[[str], list[bytes]]:
    signer = keyring.signer(_PURPOSE)
    return lambda address: signer.digests(address.encode())


def compute_address_digest(keyring: Keyring, address: str) -> bytes:
    return keyring.signer(_PURPOSE).digest(address.encode())


def _has_opt_out(kind: OptOutKind, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(
        OptOut.list_id == Subscription.list_id,
        OptOut.user_id == Subscription.user_id,
        OptOut.kind == kind,
        *conditions,
    )


# An SQL condition for active or pending subscribers who have opted out of the list. For a pending
# subscription, only opt-outs newer than ``updated_at`` count, because people may sign up again
# after an opt-out.
HAS_LEFT = or_(
    and_(Subscription.status == SubscriptionStatus.ACTIVE, _has_opt_out(OptOutKind.LIST)),
    and_(
        Subscription.status == SubscriptionStatus.PENDING,
        _has_opt_out(OptOutKind.LIST, OptOut.created_at > Subscription.updated_at),
    ),
)
# An SQL condition for subscribers who have opted out of the list's mail, although their mail is
# enabled.
HAS_NO_MAIL = and_(Subscription.email_enabled, _has_opt_out(OptOutKind.EMAIL))


def find_opt_out_changes(uow: UnitOfWork, record: Subscription) -> dict[str, Any]:
    query = select(HAS_LEFT, HAS_NO_MAIL).where(Subscription.id == record.id)
    has_left, has_no_mail = uow.session.execute(query).one()
    status = {"status": SubscriptionStatus.UNSUBSCRIBED} if has_left else {}
    return status | ({"email_enabled": False} if has_no_mail else {})


def has_opt_out_on(list_id: int) -> ColumnElement[bool]:
    return exists().where(OptOut.list_id == list_id, OptOut.user_id == Subscription.user_id)


def find_opted_out_digests(
    connection: Connection, list_id: int, digests: Collection[bytes]
) -> set[bytes]:
    values = {"list_id": list_id, "digests": list(digests)}
    return {bytes(digest) for (digest,) in connection.execute(_FIND_DIGESTS, values)}


def build_no_opt_out_condition(member: str, kind: OptOutKind | None = None) -> str:
    of_kind = f" AND o.kind = '{kind}'" if kind else ""
    return f"""NOT EXISTS (
        SELECT FROM opt_outs AS o
        WHERE o.list_id = {member}.list_id AND o.user_id = {member}.user_id{of_kind})"""


def build_opt_out_query(list_id: str, condition: str) -> str:
    """Use OFFSET 0, so that Postgres looks up opt-outs one by one."""
    return f"SELECT kind FROM opt_outs WHERE list_id = {list_id} AND {condition} OFFSET 0"  # noqa: S608


def build_address_opt_out_query(owner_id: str, list_id: str, digest: str) -> str:
    return f"""SELECT FROM address_opt_outs
        WHERE user_id = {owner_id} AND address_hmac = {digest} AND {list_id} = ANY(list_ids)
        OFFSET 0"""


def has_opt_outs(uow: UnitOfWork, list_id: int) -> bool:
    return bool(uow.session.scalar(_COUNT_FIRST, {"list_id": list_id}))


def has_address_opt_outs(connection: Connection, list_id: int) -> bool:
    """Return whether senders reported any opt-outs of addresses from the owner's lists."""
    return bool(connection.scalar(_HAS_ADDRESS_OPT_OUTS, {"list_id": list_id}))
