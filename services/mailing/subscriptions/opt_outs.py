"""Opt-outs: a person's own refusal of a list, or of its mail. Only that person lifts it.

An opt-out is found by the person, and by an HMAC of their address. The HMAC stays when the person
is erased, so that an owner who adds the address again does not bring the mail back.
"""

from collections.abc import Callable

from sqlalchemy import ColumnElement, delete, exists, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import aliased

from core.keyring import Keyring
from models import OptOut, OptOutKind, User
from storage.unit_of_work import UnitOfWork

# A key must stay in the ring for as long as opt-outs of erased people are to be recognised.
_PURPOSE = "opt-out"


def kinds_of(uow: UnitOfWork, keyring: Keyring, list_id: int, person: User) -> set[OptOutKind]:
    """The person's opt-outs on this list."""
    query = select(OptOut.kind).where(OptOut.list_id == list_id, _is_of(keyring, person))
    return {OptOutKind(kind) for kind in uow.session.scalars(query)}


def record(
    uow: UnitOfWork, keyring: Keyring, list_id: int, person: User, *, kind: OptOutKind, source: str
) -> None:
    """Store the person's opt-out; nothing changes if it is stored already."""
    digest = _digest(keyring, person)
    values = {"list_id": list_id, "user_id": person.id, "kind": kind, "source": source}
    statement = insert(OptOut).values(address_hmac=digest, **values).on_conflict_do_nothing()
    if uow.session.scalar(statement.returning(OptOut.id)) is not None:
        return
    # The person may have opted out, been erased, come back and opted out again: attach the stored
    # opt-out to the new record.
    other = aliased(OptOut)
    is_attached = exists().where(
        other.list_id == list_id, other.kind == kind, other.user_id == person.id
    )
    uow.session.execute(
        update(OptOut)
        .where(
            OptOut.list_id == list_id,
            OptOut.kind == kind,
            OptOut.address_hmac == digest,
            OptOut.user_id.is_(None),
            ~is_attached,
        )
        .values(user_id=person.id)
        .execution_options(synchronize_session=False)
    )


def lift(uow: UnitOfWork, keyring: Keyring, list_id: int, person: User, *kinds: OptOutKind) -> None:
    """Delete the person's opt-outs. Call it only for an act of that person."""
    uow.session.execute(
        delete(OptOut).where(
            OptOut.list_id == list_id, OptOut.kind.in_(kinds), _is_of(keyring, person)
        )
    )


def keep_for_erasure(uow: UnitOfWork, keyring: Keyring, person: User) -> int:
    """Detach the opt-outs of a person who is about to be erased; the HMAC of the address stays.

    Returns the number of opt-outs.
    """
    of_person = OptOut.user_id == person.id
    kept = select(
        OptOut.list_id,
        literal(_digest(keyring, person)),
        OptOut.kind,
        OptOut.source,
        OptOut.created_at,
    ).where(of_person)
    columns = ["list_id", "address_hmac", "kind", "source", "created_at"]
    uow.session.execute(insert(OptOut).from_select(columns, kept).on_conflict_do_nothing())
    detached = update(OptOut).where(of_person).values(user_id=None)
    return len(uow.session.execute(detached.returning(OptOut.id)).all())


def address_digests(keyring: Keyring, address: str) -> list[bytes]:
    """The digests under which an opt-out of this address may be stored: one for each key."""
    return address_digester(keyring)(address)


def address_digester(keyring: Keyring) -> Callable[[str], list[bytes]]:
    """A function that makes ``address_digests``: an import may need them a million times."""
    signer = keyring.signer(_PURPOSE)
    return lambda address: signer.digests(address.encode())


def _digest(keyring: Keyring, person: User) -> bytes:
    return keyring.signer(_PURPOSE).digest(person.email.encode())


def _is_of(keyring: Keyring, person: User) -> ColumnElement[bool]:
    digests = address_digests(keyring, person.email)
    return or_(OptOut.user_id == person.id, OptOut.address_hmac.in_(digests))
