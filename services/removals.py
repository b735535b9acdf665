"""Removals from the object storage: a row for each, until the object is gone.

The row is written in the transaction that forgets the object, so that nothing that dies can leave
it behind. A worker removes what is due. No request waits for that.
"""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import delete, func, select, update

from core.errors import TransientError
from core.logging import get_logger
from models import ObjectRemoval
from storage.parts import remove_all
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

# Also the pause before the next try, and before another worker takes over from one that died.
_TAKEN_FOR = timedelta(seconds=30)
_MAX_BATCH_ROWS = 100
# Other periodic work waits for this.
_MAX_ROUNDS = 20


def forget(uow: UnitOfWork, *keys: str, after: timedelta = timedelta(0)) -> None:
    """Have these objects removed once the transaction has committed, and ``after`` is over.

    A key with a final slash stands for every object whose key begins so.
    """
    uow.session.add_all(ObjectRemoval(key=key, try_at=func.now() + after) for key in keys)


def keep(uow: UnitOfWork, key: str) -> bool:
    """Take back the removals of this object. False: it may be gone, or about to go."""
    mine = ObjectRemoval.key == key
    waiting = delete(ObjectRemoval).where(mine, ObjectRemoval.tries == 0)
    taken_back = uow.session.scalars(waiting.returning(ObjectRemoval.id)).all()
    begun = uow.session.scalar(select(ObjectRemoval.id).where(mine).limit(1))
    return bool(taken_back) and begun is None


def work_off(resources: Resources) -> int:
    """Remove what is due, and return the number of removals that were done.

    Any number of workers may do it at once. What one of them leaves undone becomes due again.
    """
    done = 0
    for _ in range(_MAX_ROUNDS):
        batch = _take_due(resources)
        if not batch:
            break
        try:
            _remove(resources, batch)
        except TransientError as error:
            log.warning("removals.postponed", rows=len(batch), reason=str(error))
            with resources.unit_of_work() as uow:
                _note(uow, batch, str(error))
            break
        with resources.unit_of_work() as uow:
            ids = [removal.id for removal in batch]
            uow.session.execute(delete(ObjectRemoval).where(ObjectRemoval.id.in_(ids)))
        done += len(batch)
    return done


def _take_due(resources: Resources) -> Collection[ObjectRemoval]:
    due = (
        select(ObjectRemoval.id)
        .where(ObjectRemoval.try_at <= func.now())
        .order_by(ObjectRemoval.try_at)
        .limit(_MAX_BATCH_ROWS)
        .with_for_update(skip_locked=True)
    )
    with resources.unit_of_work() as uow:
        taken = (
            update(ObjectRemoval)
            .where(ObjectRemoval.id.in_(due.scalar_subquery()))
            .values(try_at=func.now() + _TAKEN_FOR, tries=ObjectRemoval.tries + 1)
            .returning(ObjectRemoval)
        )
        return uow.session.scalars(taken).all()


def _remove(resources: Resources, batch: Collection[ObjectRemoval]) -> None:
    resources.objects.remove(*[each.key for each in batch if not each.is_folder])
    for each in batch:
        if each.is_folder:
            remove_all(resources.objects, each.key.removesuffix("/"))


def _note(uow: UnitOfWork, batch: Collection[ObjectRemoval], reason: str) -> None:
    ids = [removal.id for removal in batch]
    failed = update(ObjectRemoval).where(ObjectRemoval.id.in_(ids))
    uow.session.execute(failed.values(last_reason=reason))
