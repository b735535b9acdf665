"""The undo of a bulk action: it restores the members that the action changed.

Members who left stay away, and mail that a reader disabled stays disabled.
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
    """Raises ``quota.exceeded`` if the plan has no room for members who would come back."""
    room = None
    if bulk.action == BulkActionKind.REMOVE:
        room = quotas.lock_quota(uow, bulk.user_id, PlanQuota.MEMBERS)
    with uow.session.begin_nested() as attempt:
        (restored, made_active), last = batches.restore_batch(uow, bulk)
        is_too_many = room is not None and made_active > max(room, 0)
        if is_too_many:
            attempt.rollback()
    if is_too_many:
        if not room or room < 0:
            raise quotas.build_exceeded_error(uow, bulk.user_id, PlanQuota.MEMBERS)
        # Restore as many members as the plan has room for.
        (restored, _), last = batches.restore_batch(uow, bulk, most=room)
    return None if last is None else RestoredBatch(restored, {"undo_reached_id": last})


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
