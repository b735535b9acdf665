"""Stores and deletes opt-outs. An opt-out applies to a whole list or only to the list's mail.

An opt-out can only be undone by the person who has opted out. Its row contains the person's id and
an HMAC of the person's address. Erasing a person keeps the HMAC, so that the opt-out still applies
if an owner adds the address. For each former address, there is an additional row without the
person's id.

An opt-out takes effect when its transaction commits, and needs no lock on the list. If a bulk
action has locked the list, a job updates the person's subscription after the bulk action.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Update,
    and_,
    case,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import aliased

from core.ids import PersonId
from models import FormerAddress, OptOut, OptOutKind, Subscription, User
from services.subscriptions.members import address_opt_outs, changes
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.opt_out_checks import (
    compute_address_digest,
    compute_address_digests,
    find_opt_out_changes,
)
from storage.unit_of_work import UnitOfWork

# The values of ``opt_outs.source`` for opt-outs that a sender, such as a mail provider, reported: a
# complaint, or an unsubscription at the provider.
SENDER_COMPLAINT = "sender-complaint"
SENDER_UNSUBSCRIBE = "sender-unsubscribe"
# The values of ``opt_outs.source`` for imported opt-outs.
_IMPORTED_SOURCES = ("import", "bounce", "complaint")
# Maps sources of opt-outs to the action in the member's history. The default is ``unsubscribed``.
_ACTION_BY_SOURCE = {
    SENDER_COMPLAINT: "complained",
    "complaint": "complained",
    "bounce": changes.BOUNCED,
}
# The maximum number of a person's former addresses for which an opt-out stores additional rows.
_MAX_FORMER_ADDRESSES = 50


def record_opt_out(
    uow: UnitOfWork, list_id: int, person: User, *, kind: OptOutKind, source: str
) -> None:
    digest = compute_address_digest(uow.settings.keyring, person.email)
    _release_digests(
        uow, list_id, person.id, compute_address_digests(uow.settings.keyring, person.email)
    )
    values = {"list_id": list_id, "kind": kind, "source": source}
    for former_address in list_former_addresses(uow, person):
        former_digest = compute_address_digest(uow.settings.keyring, former_address)
        insert_former = insert(OptOut).values(address_hmac=former_digest, **values)
        uow.session.execute(insert_former.on_conflict_do_nothing())
    values |= {"user_id": person.id}
    statement = insert(OptOut).values(address_hmac=digest, **values).on_conflict_do_nothing()
    if uow.session.scalar(statement.returning(OptOut.id)) is not None:
        return
    # Add the person's id to an opt-out that contains only a digest, because an erased person may
    # have signed up again with a new id.
    person_opt_out = aliased(OptOut)
    has_opt_out = exists().where(
        person_opt_out.list_id == list_id,
        person_opt_out.kind == kind,
        person_opt_out.user_id == person.id,
    )
    set_person = (
        update(OptOut)
        .where(
            OptOut.list_id == list_id,
            OptOut.kind == kind,
            OptOut.address_hmac == digest,
            OptOut.user_id.is_(None),
            ~has_opt_out,
        )
        .values(user_id=person.id)
    )
    _execute_update(uow, set_person)


def renew_opt_out(
    uow: UnitOfWork,
    list_id: int,
    person: User,
    *,
    kind: OptOutKind,
    source: str,
    mailing_id: int | None = None,
    reason: str | None = None,
) -> int | None:
    """Store an opt-out or renew its time, source, mailing and reason, and return its id."""
    record_opt_out(uow, list_id, person, kind=kind, source=source)
    set_time = (
        update(OptOut)
        .where(OptOut.list_id == list_id, OptOut.kind == kind, OptOut.user_id == person.id)
        .values(
            created_at=func.clock_timestamp(), source=source, mailing_id=mailing_id, reason=reason
        )
        .returning(OptOut.id)
    )
    return uow.session.scalar(set_time)


def restore_opt_out(
    uow: UnitOfWork,
    list_id: int,
    person_id: PersonId | None,
    address_hmac: bytes,
    *,
    kind: OptOutKind,
    source: str,
    at: datetime,
) -> bool:
    """Return false if a restored backup has the opt-out.

    No other process may be using the database.
    """
    person = None if person_id is None else uow.session.get(User, person_id)
    if person is not None and person.erased_at is not None:
        person = None
    values = {"list_id": list_id, "address_hmac": address_hmac, "kind": kind, "source": source}
    statement = insert(OptOut).values(user_id=person and person.id, created_at=at, **values)
    insert_missing = statement.on_conflict_do_nothing().returning(OptOut.id)
    if uow.session.scalar(insert_missing) is None:
        return False
    record = None if person is None else changes.find_record(uow, list_id, person.id)
    if record is not None:
        apply_opt_outs(uow, record, Actor(ActorKind.OPERATOR, Via.COMMAND))
    return True


def apply_opt_outs(uow: UnitOfWork, record: Subscription, actor: Actor | None = None) -> None:
    """Change a locked subscription as opt-outs require.

    By default, ``actor`` is the person or process that caused the opt-out.
    """
    values = find_opt_out_changes(uow, record)
    if not values:
        return
    kind = OptOutKind.LIST if "status" in values else OptOutKind.EMAIL
    query = select(OptOut).where(
        OptOut.list_id == record.list_id, OptOut.user_id == record.user_id, OptOut.kind == kind
    )
    stored = uow.session.scalars(query).one()
    action = _ACTION_BY_SOURCE.get(stored.source, "unsubscribed")
    if kind is OptOutKind.EMAIL:
        action = "email_disabled"
    changes.change_record(uow, record, action, actor or _build_actor(stored), **values)


def _build_actor(stored: OptOut) -> Actor:
    mailing_id = stored.mailing_id
    if stored.source in (SENDER_COMPLAINT, SENDER_UNSUBSCRIBE):
        return Actor(ActorKind.SENDER, Via.SENDER, mailing_id=mailing_id)
    if stored.source in _IMPORTED_SOURCES:
        return Actor(ActorKind.IMPORT, Via.IMPORT)
    # The source of an opt-out that followed a transfer isn't a value of ``Via``.
    via = Via(stored.source) if stored.source in set(Via) else Via.IMPORT
    return Actor(
        ActorKind.USER, via, user_id=stored.user_id, reason=stored.reason, mailing_id=mailing_id
    )


def lift_opt_outs(uow: UnitOfWork, list_id: int, person: User, *kinds: OptOutKind) -> None:
    """Delete a person's opt-outs, but keep the opt-outs of people who once had the address.

    Opt-outs may only be deleted at the request of the person who has opted out.
    """
    digests = compute_address_digests(uow.settings.keyring, person.email)
    _release_digests(uow, list_id, person.id, digests)
    for former_address in list_former_addresses(uow, person):
        digests += compute_address_digests(uow.settings.keyring, former_address)
    has_only_address = and_(OptOut.user_id.is_(None), OptOut.address_hmac.in_(digests))
    uow.session.execute(
        delete(OptOut).where(
            OptOut.list_id == list_id,
            OptOut.kind.in_(kinds),
            or_(OptOut.user_id == person.id, has_only_address),
        )
    )
    if OptOutKind.LIST in kinds:
        address_opt_outs.lift(uow, list_id, digests)


def _release_digests(
    uow: UnitOfWork, list_id: int, person_id: PersonId, digests: Collection[bytes]
) -> None:
    """Remove the address from opt-outs of people who once had the address.

    These opt-outs stay valid, because they contain the people's ids.
    """
    is_of_other_person = (
        OptOut.list_id == list_id,
        OptOut.address_hmac.in_(digests),
        OptOut.user_id != person_id,
    )
    other_ids = set(uow.session.scalars(select(OptOut.user_id).where(*is_of_other_person)))
    for other_id in other_ids:
        # Replace the digest of the address with a digest of the person's id, because
        # ``address_hmac`` must be unique per list and not NULL.
        digest = compute_address_digest(uow.settings.keyring, str(other_id))
        statement = update(OptOut).where(*is_of_other_person, OptOut.user_id == other_id)
        _execute_update(uow, statement.values(address_hmac=digest))


def transfer_opt_outs(uow: UnitOfWork, *, of: User, to: User) -> None:
    """Transfer opt-outs to the account that takes over the address.

    They apply to all current and former addresses of both. The caller must have locked both rows.
    """
    is_of_person = OptOut.user_id == of.id
    for address in (to.email, *list_former_addresses(uow, to)):
        _copy_to_address(uow, address, is_of_person)
    account_opt_out = aliased(OptOut)
    has_same_opt_out = exists().where(
        account_opt_out.list_id == OptOut.list_id,
        account_opt_out.kind == OptOut.kind,
        account_opt_out.user_id == to.id,
    )
    # If the account already has an opt-out of the same kind from the same list, detach the
    # transferred opt-out from the account. An account can't have two equal opt-outs.
    new_values = {
        column: case((has_same_opt_out, None), else_=value)
        for column, value in (
            (OptOut.user_id, to.id),
            (OptOut.reason, OptOut.reason),
            (OptOut.mailing_id, OptOut.mailing_id),
        )
    }
    _execute_update(uow, update(OptOut).where(is_of_person).values(new_values))


def _execute_update(uow: UnitOfWork, statement: Update) -> None:
    uow.session.execute(statement.execution_options(synchronize_session=False))


def copy_opt_outs_to_address(uow: UnitOfWork, person: User, address: str) -> None:
    _copy_to_address(uow, address, OptOut.user_id == person.id)


def detach_opt_outs(uow: UnitOfWork, person: User, address: str) -> int:
    """Remove the person's id before an erasure, and return the number of opt-outs.

    They stay valid for the verified ``address`` and former addresses. A database trigger clears
    the columns ``mailing_id`` and ``reason``.
    """
    is_of_person = OptOut.user_id == person.id
    _copy_to_address(uow, address, is_of_person)
    for former_address in list_former_addresses(uow, person):
        _copy_to_address(uow, former_address, is_of_person)
    statement = update(OptOut).where(is_of_person).values(user_id=None)
    return len(uow.session.execute(statement.returning(OptOut.id)).all())


def _copy_to_address(uow: UnitOfWork, address: str, condition: ColumnElement[bool]) -> None:
    digest = literal(compute_address_digest(uow.settings.keyring, address))
    copies = select(OptOut.list_id, digest, OptOut.kind, OptOut.source, OptOut.created_at).where(
        condition
    )
    columns = ["list_id", "address_hmac", "kind", "source", "created_at"]
    statement = insert(OptOut).from_select(columns, copies)
    uow.session.execute(statement.on_conflict_do_nothing())


def list_former_addresses(uow: UnitOfWork, person: User) -> Sequence[str]:
    """Omit addresses that an account has taken over.

    Only the account's owner may decide about opt-outs for such an address.
    """
    query = select(FormerAddress.email).where(
        FormerAddress.user_id == person.id, ~exists().where(User.email == FormerAddress.email)
    )
    query = query.order_by(FormerAddress.left_at.desc()).limit(_MAX_FORMER_ADDRESSES)
    return uow.session.scalars(query).all()
