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
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from storage.objects import DeletionRefused
from storage.parts import remove_prefix
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

REMOVE_OBJECTS = register_maintenance(
    "objects.remove", every=timedelta(seconds=5), run=lambda resources, _: work_off(resources)
)
# The maintenance that makes a backup: until it has ended nothing is removed, so that the copy of
# the bucket has every object that the dump before it names.
HELD_BACK_BY = "backup.create"
# Also the pause before the next try, and before another worker takes over from one that died.
_TAKEN_FOR = timedelta(seconds=30)
_MAX_BATCH_ROWS = 100
# Other periodic work waits for this.
_MAX_ROUNDS = 20


def forget_objects(uow: UnitOfWork, *keys: str, after: timedelta = timedelta(0)) -> None:
    """Have objects, and folders (keys with a final slash), removed ``after`` the commit."""
    uow.session.add_all(ObjectRemoval(key=key, try_at=func.now() + after) for key in keys)


def keep_object(uow: UnitOfWork, key: str) -> bool:
    """Take back the removals of this object. False: it may be gone, or about to go."""
    mine = ObjectRemoval.key == key
    waiting = delete(ObjectRemoval).where(mine, ObjectRemoval.tries == 0)
    taken_back = uow.session.scalars(waiting.returning(ObjectRemoval.id)).all()
    begun = uow.session.scalar(select(ObjectRemoval.id).where(mine).limit(1))
    return bool(taken_back) and begun is None


def work_off(resources: Resources) -> int:
    """Remove what is due, beside other workers, and return how many removals were done."""
    done = 0
    for _ in range(_MAX_ROUNDS):
        row = ObjectRemoval
        is_due = row.try_at <= func.now(), ~maintenance.is_running(HELD_BACK_BY)
        due = select(row.id).where(*is_due).order_by(row.try_at).limit(_MAX_BATCH_ROWS)
        due = due.with_for_update(skip_locked=True)
        taken = update(row).where(row.id.in_(due.scalar_subquery()))
        taken = taken.values(try_at=func.now() + _TAKEN_FOR, tries=row.tries + 1)
        with resources.unit_of_work() as uow:
            batch = uow.session.scalars(taken.returning(row)).all()
        if not batch:
            break
        try:
            kept = _remove(resources, batch)
        except TransientError as error:
            _postpone(resources, batch, str(error))
            break
        for reason in set(kept.values()):
            _postpone(resources, [each for each in batch if kept.get(each.key) == reason], reason)
        ids = [each.id for each in batch if each.key not in kept]
        with resources.unit_of_work() as uow:
            uow.session.execute(delete(ObjectRemoval).where(ObjectRemoval.id.in_(ids)))
        done += len(ids)
    return done


def _remove(resources: Resources, batch: Collection[ObjectRemoval]) -> dict[str, str]:
    """Remove what the batch names. Returns why, for each key that the storage keeps."""
    kept: dict[str, str] = {}
    try:
        resources.objects.remove(*[each.key for each in batch if not each.is_folder])
    except DeletionRefused as error:
        kept |= error.codes
    for each in batch:
        if each.is_folder:
            try:
                remove_prefix(resources.objects, each.key.removesuffix("/"))
            except DeletionRefused as error:
                kept[each.key] = str(error)
    return kept


def _postpone(resources: Resources, removals: Collection[ObjectRemoval], reason: str) -> None:
    log.warning("removals.postponed", rows=len(removals), reason=reason)
    ids = [removal.id for removal in removals]
    failed = update(ObjectRemoval).where(ObjectRemoval.id.in_(ids))
    with resources.unit_of_work() as uow:
        uow.session.execute(failed.values(last_reason=reason))
