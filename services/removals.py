"""Removes unused objects from the object storage, in the background.

The transaction that stops using an object also writes a row to ``object_removals``, so that the
object is removed even if the process is killed. Maintenance first removes the object from the
storage, and then deletes the row in ``object_removals``.
"""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import delete, func, select, update

from core.errors import TransientError
from core.logging import get_logger
from core.pauses import Pauses
from models import ObjectRemoval
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from services.jobs.waiting_work import WorkQueue
from storage.objects import DeletionRefused
from storage.parts import remove_prefix
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

REMOVE_OBJECTS = register_maintenance(
    "objects.remove",
    every=timedelta(seconds=5),
    run=lambda resources, _: process_due_removals(resources),
)
# The name of the maintenance task that creates backups. No object is removed during a backup. A
# backup dumps the database first, and then copies the objects to which the dump refers.
BLOCKING_TASK = "backup.create"
# A worker that fails leaves the removals to the next one after half a minute. No removal is given
# up, because the object may contain personal data.
_REMOVALS = WorkQueue(ObjectRemoval, Pauses((timedelta(seconds=30),)))
_MAX_BATCH_ROWS = 100
# Each run processes at most this many batches, so that it doesn't delay other maintenance.
_MAX_BATCHES = 20


def forget_objects(uow: UnitOfWork, *keys: str, after: timedelta = timedelta(0)) -> None:
    """Schedule the removal of objects ``after`` the commit. A folder's key ends with a slash."""
    uow.session.add_all(ObjectRemoval(key=key, due_at=func.now() + after) for key in keys)


def keep_object(uow: UnitOfWork, key: str) -> bool:
    """Cancel the scheduled removals of an object.

    Return false if no removal was scheduled, or if a worker has already tried to remove the object.
    """
    has_key = ObjectRemoval.key == key
    untried = delete(ObjectRemoval).where(has_key, ObjectRemoval.unfinished_tries == 0)
    cancelled_ids = uow.session.scalars(untried.returning(ObjectRemoval.id)).all()
    tried_id = uow.session.scalar(select(ObjectRemoval.id).where(has_key).limit(1))
    return bool(cancelled_ids) and tried_id is None


def can_keep_object(uow: UnitOfWork, key: str) -> bool:
    query = select(func.max(ObjectRemoval.unfinished_tries)).where(ObjectRemoval.key == key)
    return uow.session.scalar(query) == 0


def process_due_removals(resources: Resources) -> int:
    """Carry out all due removals. Several workers can do this at the same time."""
    removed_rows = 0
    due = _REMOVALS.select_due(ObjectRemoval.id).where(~maintenance.is_running(BLOCKING_TASK))
    due = due.order_by(ObjectRemoval.due_at).limit(_MAX_BATCH_ROWS)
    for _ in range(_MAX_BATCHES):
        with resources.unit_of_work() as uow:
            batch = _REMOVALS.begin_tries(uow, uow.session.scalars(due).all())
        if not batch:
            break
        try:
            reasons = _remove_batch(resources, batch)
        except TransientError as error:
            _postpone(resources, batch, str(error))
            break
        for reason in set(reasons.values()):
            refused = [removal for removal in batch if reasons.get(removal.key) == reason]
            _postpone(resources, refused, reason)
        ids = [removal.id for removal in batch if removal.key not in reasons]
        with resources.unit_of_work() as uow:
            _REMOVALS.delete_rows(uow, ids)
        removed_rows += len(ids)
    return removed_rows


def _remove_batch(resources: Resources, batch: Collection[ObjectRemoval]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    try:
        resources.objects.remove(*[removal.key for removal in batch if not removal.is_folder])
    except DeletionRefused as error:
        reasons |= error.codes
    for removal in batch:
        if removal.is_folder:
            try:
                remove_prefix(resources.objects, removal.key.removesuffix("/"))
            except DeletionRefused as error:
                reasons[removal.key] = str(error)
    return reasons


def _postpone(resources: Resources, removals: Collection[ObjectRemoval], reason: str) -> None:
    log.warning("removals.postponed", rows=len(removals), reason=reason)
    ids = [removal.id for removal in removals]
    statement = update(ObjectRemoval).where(ObjectRemoval.id.in_(ids))
    with resources.unit_of_work() as uow:
        uow.session.execute(statement.values(last_reason=reason))
