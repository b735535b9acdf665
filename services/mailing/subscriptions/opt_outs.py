"""A person's own no to a list, or to its mail. Only that person takes it back.

It is found by the person, and by an HMAC of their address: erasing them leaves the second, so that
an owner who brings the address back does not bring the mail back.
"""

from collections.abc import Callable

from sqlalchemy import ColumnElement, delete, exists, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import aliased

from core.keyring import Keyring
from models import OptOut, OptOutKind, User
from storage.unit_of_work import UnitOfWork

# Keys must stay in the ring for as long as opt-outs of erased people are to be known.
_PURPOSE = "opt-out"


def kinds_of(uow: UnitOfWork, keyring: Keyring, list_id: int, person: User) -> set[OptOutKind]:
    """What the person said no to."""
    query = select(OptOut.kind).where(OptOut.list_id == list_id, _theirs(keyring, person))
    return {OptOutKind(kind) for kind in uow.session.scalars(query)}


def record(
    uow: UnitOfWork, keyring: Keyring, list_id: int, person: User, *, kind: OptOutKind, source: str
) -> None:
    """Keep the person's no; nothing changes if it is kept already."""
    digest = _digest(keyring, person)
    values = {"list_id": list_id, "user_id": person.id, "kind": kind, "source": source}
    statement = insert(OptOut).values(address_hmac=digest, **values).on_conflict_do_nothing()
    if uow.session.scalar(statement.returning(OptOut.id)) is None:
        _take_up(uow, list_id, person, kind, digest)


def lift(uow: UnitOfWork, keyring: Keyring, list_id: int, person: User, *kinds: OptOutKind) -> None:
    """Forget the person's no. Call it for an act of that person's alone."""
    uow.session.execute(
        delete(OptOut).where(
            OptOut.list_id == list_id, OptOut.kind.in_(kinds), _theirs(keyring, person)
        )
    )


def keep_for_erasure(uow: UnitOfWork, keyring: Keyring, person: User) -> int:
    """Let go of a person who is about to be erased, and keep their no under their last address.

    Returns how many there are.
    """
    theirs = OptOut.user_id == person.id
    kept = select(
        OptOut.list_id,
        literal(_digest(keyring, person)),
        OptOut.kind,
        OptOut.source,
        OptOut.created_at,
    ).where(theirs)
    columns = ["list_id", "address_hmac", "kind", "source", "created_at"]
    uow.session.execute(insert(OptOut).from_select(columns, kept).on_conflict_do_nothing())
    let_go = update(OptOut).where(theirs).values(user_id=None)
    return len(uow.session.execute(let_go.returning(OptOut.id)).all())


def address_digests(keyring: Keyring, address: str) -> list[bytes]:
    """What an opt-out of this address may be kept under: one digest for each key."""
    return address_digester(keyring)(address)


def address_digester(keyring: Keyring) -> Callable[[str], list[bytes]]:
    """Makes ``address_digests`` of one address after another: an import has a million of them."""
    signer = keyring.signer(_PURPOSE)
    return lambda address: signer.digests(address.encode())


def _take_up(uow: UnitOfWork, list_id: int, person: User, kind: OptOutKind, digest: bytes) -> None:
    """Said before they were erased, and again now that they are back: theirs once more."""
    theirs = aliased(OptOut)
    is_theirs = exists().where(
        theirs.list_id == list_id, theirs.kind == kind, theirs.user_id == person.id
    )
    uow.session.execute(
        update(OptOut)
        .where(
            OptOut.list_id == list_id,
            OptOut.kind == kind,
            OptOut.address_hmac == digest,
            OptOut.user_id.is_(None),
            ~is_theirs,
        )
        .values(user_id=person.id)
        .execution_options(synchronize_session=False)
    )


def _digest(keyring: Keyring, person: User) -> bytes:
    return keyring.signer(_PURPOSE).digest(person.email.encode())


def _theirs(keyring: Keyring, person: User) -> ColumnElement[bool]:
    digests = address_digests(keyring, person.email)
    return or_(OptOut.user_id == person.id, OptOut.address_hmac.in_(digests))
