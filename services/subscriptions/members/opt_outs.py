"""Stores and lifts opt-outs: a person refuses a list, or only the mail of a list.

Only the person who opted out can lift the opt-out.

The module ``opt_out_checks`` looks for opt-outs before a person becomes a member or gets mail.

An opt-out refers to the person, and to an HMAC of their address. The HMAC remains after the person
was erased. If an owner adds the address again, the opt-out therefore still applies. An opt-out is
also stored for each former address of the person, in rows without the person.

An opt-out applies as soon as its transaction commits, and needs no lock. While a bulk action holds
the lock of the list, the person's subscription is updated later.
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

from models import FormerAddress, OptOut, OptOutKind, Subscription, User
from services.subscriptions.members import changes
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.opt_out_checks import (
    address_digest,
    address_digests,
    find_unsettled_values,
)
from storage.unit_of_work import UnitOfWork

# A person who moves more often writes no more rows for an opt-out.
_MAX_FORMER_ADDRESSES = 50


def record_opt_out(
    uow: UnitOfWork, list_id: int, person: User, *, kind: OptOutKind, source: str
) -> None:
    """Store the person's opt-out; nothing changes if it is stored already."""
    digest = address_digest(uow.settings.keyring, person.email)
    _make_way(uow, list_id, person.id, address_digests(uow.settings.keyring, person.email))
    values = {"list_id": list_id, "kind": kind, "source": source}
    for each in _former_addresses(uow, person):
        also = insert(OptOut).values(
            address_hmac=address_digest(uow.settings.keyring, each), **values
        )
        uow.session.execute(also.on_conflict_do_nothing())
    values |= {"user_id": person.id}
    statement = insert(OptOut).values(address_hmac=digest, **values).on_conflict_do_nothing()
    if uow.session.scalar(statement.returning(OptOut.id)) is not None:
        return
    # The person may have opted out, been erased, come back and opted out again: attach the stored
    # opt-out to the new record.
    other = aliased(OptOut)
    has_one = exists().where(
        other.list_id == list_id, other.kind == kind, other.user_id == person.id
    )
    stored = OptOut.list_id == list_id, OptOut.kind == kind, OptOut.address_hmac == digest
    lost = update(OptOut).where(*stored, OptOut.user_id.is_(None), ~has_one)
    _write(uow, lost.values(user_id=person.id))


def record_again(
    uow: UnitOfWork, list_id: int, person: User, *, kind: OptOutKind, source: str
) -> int | None:
    """Store the person's opt-out with the current time, even if it is stored already.

    Returns the id of the opt-out.
    """
    record_opt_out(uow, list_id, person, kind=kind, source=source)
    is_opt_out = and_(OptOut.list_id == list_id, OptOut.kind == kind, OptOut.user_id == person.id)
    again = (
        update(OptOut).where(is_opt_out).values(created_at=func.clock_timestamp(), source=source)
    )
    return uow.session.scalar(again.returning(OptOut.id))


def record_past(
    uow: UnitOfWork,
    list_id: int,
    user_id: int | None,
    address_hmac: bytes,
    *,
    kind: OptOutKind,
    source: str,
    at: datetime,
) -> bool:
    """Store an opt-out that a restored database has lost, and settle the person's record.

    False if it is stored already. Nothing else may use the database meanwhile.
    """
    person = None if user_id is None else uow.session.get(User, user_id)
    if person is not None and person.erased_at is not None:
        person = None
    values = {"list_id": list_id, "address_hmac": address_hmac, "kind": kind, "source": source}
    statement = insert(OptOut).values(user_id=person and person.id, created_at=at, **values)
    stored = statement.on_conflict_do_nothing().returning(OptOut.id)
    if uow.session.scalar(stored) is None:
        return False
    found = None if person is None else changes.find_record(uow, list_id, person.id)
    if found is not None:
        settle_opt_outs(uow, found, Actor(ActorKind.OPERATOR, Via.COMMAND))
    return True


def settle_opt_outs(uow: UnitOfWork, record: Subscription, actor: Actor | None = None) -> None:
    """Bring the record up to its person's opt-outs; call it under the pair's lock."""
    values = find_unsettled_values(uow, record)
    if values:
        actor = actor or Actor(ActorKind.USER, Via.TRACE, record.user_id)
        action = "unsubscribed" if "status" in values else "email_disabled"
        changes.change_record(uow, record, action, actor, **values)


def lift_opt_outs(uow: UnitOfWork, list_id: int, person: User, *kinds: OptOutKind) -> None:
    """Delete the person's opt-outs. Call it only for an act of that person.

    An opt-out of somebody else who had the address before stays.
    """
    digests = address_digests(uow.settings.keyring, person.email)
    _make_way(uow, list_id, person.id, digests)
    for each in _former_addresses(uow, person):
        digests += address_digests(uow.settings.keyring, each)
    of_nobody_else = and_(OptOut.user_id.is_(None), OptOut.address_hmac.in_(digests))
    uow.session.execute(
        delete(OptOut).where(
            OptOut.list_id == list_id,
            OptOut.kind.in_(kinds),
            or_(OptOut.user_id == person.id, of_nobody_else),
        )
    )


def _make_way(uow: UnitOfWork, list_id: int, user_id: int, digests: Collection[bytes]) -> None:
    """Keep the opt-outs of other people by those people alone, who had this person's address.

    An opt-out of a person who is known is found by them. Once they are erased it is kept under the
    address that they have by then.
    """
    has_address = OptOut.list_id == list_id, OptOut.address_hmac.in_(digests)
    of_others = *has_address, OptOut.user_id != user_id
    others = set(uow.session.scalars(select(OptOut.user_id).where(*of_others)))
    for each in others:
        # No address: each opt-out of a list has one digest to itself.
        theirs = update(OptOut).where(*of_others, OptOut.user_id == each)
        _write(uow, theirs.values(address_hmac=address_digest(uow.settings.keyring, str(each))))


def hand_over(uow: UnitOfWork, *, of: User, to: User) -> None:
    """Let the opt-outs of a record whose address an account takes be those of the account.

    They hold for all addresses of either. Both people are locked.
    """
    theirs = OptOut.user_id == of.id
    for address in (to.email, *_former_addresses(uow, to)):
        _keep_under(uow, address, theirs)
    same = aliased(OptOut)
    has_same = exists().where(
        same.list_id == OptOut.list_id, same.kind == OptOut.kind, same.user_id == to.id
    )
    whose = case((has_same, None), else_=to.id)
    _write(uow, update(OptOut).where(theirs).values(user_id=whose))


def _write(uow: UnitOfWork, statement: Update) -> None:
    uow.session.execute(statement.execution_options(synchronize_session=False))


def keep_for_address(uow: UnitOfWork, person: User, address: str) -> None:
    """Let the person's opt-outs hold for an address that they are about to have."""
    _keep_under(uow, address, OptOut.user_id == person.id)


def keep_for_erasure(uow: UnitOfWork, person: User, address: str) -> int:
    """Detach the opt-outs of a person who is about to be erased; returns their number.

    HMACs of the person's addresses stay, among them that of ``address``, which they proved to have.
    """
    of_person = OptOut.user_id == person.id
    _keep_under(uow, address, of_person)
    for each in _former_addresses(uow, person):
        _keep_under(uow, each, of_person)
    detached = update(OptOut).where(of_person).values(user_id=None)
    return len(uow.session.execute(detached.returning(OptOut.id)).all())


def _keep_under(uow: UnitOfWork, address: str, *of: ColumnElement[bool]) -> None:
    """Keep these opt-outs under the address as well, without their person."""
    digest = literal(address_digest(uow.settings.keyring, address))
    kept = select(OptOut.list_id, digest, OptOut.kind, OptOut.source, OptOut.created_at).where(*of)
    columns = ["list_id", "address_hmac", "kind", "source", "created_at"]
    statement = insert(OptOut).from_select(columns, kept)
    uow.session.execute(statement.on_conflict_do_nothing())


def _former_addresses(uow: UnitOfWork, person: User) -> Sequence[str]:
    """The latest that nobody has now: whoever has one says by themselves what they want."""
    query = select(FormerAddress.email).where(
        FormerAddress.user_id == person.id, ~exists().where(User.email == FormerAddress.email)
    )
    query = query.order_by(FormerAddress.left_at.desc()).limit(_MAX_FORMER_ADDRESSES)
    return uow.session.scalars(query).all()
