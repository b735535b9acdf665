"""Undoes a bulk action by restoring the values that members had before the bulk action.

An undo never resubscribes people who have unsubscribed, and never enables mail that a member has
disabled.
"""

from core.errors.mailing import BULK_NOT_FOUND, BULK_RUNNING, BULK_UNDO_OVER
from core.settings.notations import PlanQuota
from models import BulkAction, BulkActionKind
from services.access import quotas
from services.subscriptions.bulk_actions import batches
from services.subscriptions.bulk_actions.actions import announce_end
from services.subscriptions.undo import RestoredBatch, Undo
from storage.unit_of_work import UnitOfWork


def _restore_batch(uow: UnitOfWork, bulk: BulkAction) -> RestoredBatch | None:
    free_members = None
    if bulk.action == BulkActionKind.REMOVE:
        free_members = quotas.lock_quota(uow, bulk.user_id, PlanQuota.MEMBERS)
    with uow.session.begin_nested() as attempt:
        restored = batches.restore_batch(uow, bulk)
        is_too_many = free_members is not None and restored.activated_count > max(free_members, 0)
        if is_too_many:
            attempt.rollback()
    if is_too_many:
        if not free_members or free_members < 0:
            raise quotas.build_exceeded_error(uow, bulk.user_id, PlanQuota.MEMBERS)
        # Restore only as many members of the batch as the owner's plan allows.
        restored = batches.restore_batch(uow, bulk, max_members=free_members)
    if restored.last_id is None:
        return None
    return RestoredBatch(restored.restored_count, {"undo_reached_id": restored.last_id})


def _end_undo(uow: UnitOfWork, bulk: BulkAction, job_id: int, status: str) -> None:
    announce_end(
        uow,
        bulk,
        job_id,
        status,
        action="undo_bulk",
        total=bulk.changed,
        changed=bulk.undone,
    )


BULK_UNDO = Undo(
    model=BulkAction,
    job_name="members.bulk_undo",
    id_name="bulk_id",
    not_found=BULK_NOT_FOUND,
    running=BULK_RUNNING,
    over=BULK_UNDO_OVER,
    count_changed=lambda bulk: bulk.changed,
    restore_batch=_restore_batch,
    end=_end_undo,
    is_complete=lambda bulk: bulk.undone_at is not None,
    has_total=True,
    needs_recent_login=False,
)
