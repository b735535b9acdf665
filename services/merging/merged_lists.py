"""Makes one record of the two that a list may have, and moves the others."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Select, delete, func, select, text, union_all, update
from sqlalchemy.orm import InstrumentedAttribute

from models import (
    BulkChange,
    ConsentEntry,
    ConsentHow,
    OptOut,
    OptOutKind,
    Subscription,
    SubscriptionStatus,
)
from services.mailing.subscriptions import changes, locks, opt_outs
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.merging import unions
from services.merging.merge_work import AccountGone, MergedBatch, MergeWork
from services.merging.undo_rows import carry_over
from storage.unit_of_work import UnitOfWork

# A batch keeps bulk acts off all these lists. Tests set less.
MAX_LISTS = 20
_HAND_OVER_CLAIMS = text("SELECT hand_over_consent_claims(:merge_id, :list_id)")


def merge_lists(uow: UnitOfWork, work: MergeWork, after: int | None) -> MergedBatch:
    """Merge what some lists have of the person; raises ``AccountGone``, ``TransientError``."""
    list_ids = _next_lists(uow, work.merged_id, after or 0)
    if not list_ids:
        return MergedBatch(0, None)
    if not locks.lock_both(uow, work.user_id, work.merged_id, *list_ids):
        raise AccountGone
    own, others = (_records(uow, each, list_ids) for each in (work.user_id, work.merged_id))
    for each in (*own.values(), *others.values()):
        opt_outs.settle(uow, each)
    opt_outs.hand_over(
        uow, work.keyring, list_ids, of=work.merged_id, to=work.user_id, addresses=work.addresses
    )
    actor = Actor(ActorKind.USER, Via.LOGIN, work.user_id)
    for list_id in own.keys() & others.keys():
        _merge(uow, work, own[list_id], others[list_id], actor)
    moved = _move(uow, work, list_ids, actor)
    for each in (*own.values(), *moved):
        opt_outs.settle(uow, each, actor)
    return MergedBatch(len(others), list_ids[-1] if len(list_ids) == MAX_LISTS else None)


def _next_lists(uow: UnitOfWork, user_id: int, after: int) -> list[int]:
    """The next lists that have a record or an opt-out of the person, in order."""
    either = union_all(
        _first_lists(Subscription.list_id, Subscription.user_id == user_id, after),
        _first_lists(OptOut.list_id, OptOut.user_id == user_id, after),
    ).subquery()
    query = select(either.c.list_id).distinct().order_by(either.c.list_id).limit(MAX_LISTS)
    return list(uow.session.scalars(query))


def _first_lists(
    list_id: InstrumentedAttribute[int], is_theirs: ColumnElement[bool], after: int
) -> Select[int]:
    # A person has several opt-outs on one list, and less than a full batch counts as the last.
    theirs = select(list_id).where(is_theirs, list_id > after).distinct()
    query = theirs.order_by(list_id).limit(MAX_LISTS)
    return select(query.subquery().c.list_id)


def _records(uow: UnitOfWork, user_id: int, list_ids: Sequence[int]) -> dict[int, Subscription]:
    query = select(Subscription).where(
        Subscription.user_id == user_id, Subscription.list_id.in_(list_ids)
    )
    found = uow.session.scalars(query.execution_options(populate_existing=True))
    return {each.list_id: each for each in found}


def _merge(
    uow: UnitOfWork, work: MergeWork, own: Subscription, other: Subscription, actor: Actor
) -> None:
    """Let the other record go into the account's own one, and delete it."""
    values = unions.union(own, other, _refused(uow, work, own.list_id))
    carry_over(uow, own, other, values)
    uow.session.execute(delete(BulkChange).where(BulkChange.subscription_id == other.id))
    claims = {"merge_id": work.merge_id, "list_id": own.list_id}
    uow.session.execute(_HAND_OVER_CLAIMS, claims)
    if other.import_id is not None:
        # Which the other record said itself, as long as it was there.
        came = {"how": ConsentHow.IMPORT, "import_id": other.import_id}
        came |= {"occurred_at": other.imported_at}
        uow.session.add(ConsentEntry(list_id=own.list_id, user_id=work.user_id, **came))
    changes.change(uow, other, changes.MERGED, actor, status=SubscriptionStatus.REMOVED)
    uow.session.execute(delete(Subscription).where(Subscription.id == other.id))
    if not changes.change(uow, own, changes.MERGED, actor, **values):
        # An undo of what made the own record must not take away what the other one stood for.
        touched = update(Subscription).where(Subscription.id == own.id)
        uow.session.execute(touched.values(updated_at=func.clock_timestamp()))


def _refused(uow: UnitOfWork, work: MergeWork, list_id: int) -> set[OptOutKind]:
    own = select(OptOut.kind).where(OptOut.list_id == list_id, OptOut.user_id == work.user_id)
    return {OptOutKind(kind) for kind in uow.session.scalars(own)}


def _move(
    uow: UnitOfWork, work: MergeWork, list_ids: Sequence[int], actor: Actor
) -> Sequence[Subscription]:
    """Give the account's person the records on lists that have no other one of them.

    A record is what it was: an undo of the import that made it still takes it back.
    """
    statement = (
        update(Subscription)
        .where(Subscription.user_id == work.merged_id, Subscription.list_id.in_(list_ids))
        .values(user_id=work.user_id, updated_at=Subscription.updated_at)
        .returning(Subscription)
        .execution_options(populate_existing=True, synchronize_session=False)
    )
    moved = uow.session.scalars(statement).all()
    for each in moved:
        before, was_enabled = each.status, each.email_enabled
        changes.note(uow, each, changes.MERGED, actor, status=before, email_enabled=was_enabled)
    return moved
