"""What a merge moves from one record to the other, and in which order.

A stage moves one batch and says where it goes on, in one transaction with that bookmark. It may
begin anew at any time: it then finds less, or nothing. What is moved is erased with the account.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, exists, select, text, update
from sqlalchemy.orm import InstrumentedAttribute, aliased

from models import AccountMail, ListReport, MailedLink, WebhookDelivery
from services.mailing.subscriptions import locks
from services.merging.merge_work import AccountGone, MergedBatch, MergeStage, MergeWork
from services.merging.merged_lists import merge_lists
from storage.unit_of_work import UnitOfWork

# So that a batch takes a fraction of a second. Tests set less.
MAX_MOVED_ROWS = 1_000

_MOVE_HISTORY = text("""
WITH batch AS (
    SELECT id FROM subscription_events WHERE user_id = :merged_id ORDER BY id LIMIT :most
), moved AS (
    UPDATE subscription_events AS e SET user_id = :user_id,
        actor_id = CASE WHEN actor_id = :merged_id THEN :user_id ELSE actor_id END
    FROM batch WHERE e.id = batch.id
    RETURNING e.id
)
SELECT count(*) FROM moved
""")
_MOVE_ENTRIES = text("SELECT hand_over_consent_entries(:merge_id, :most)")


def _move_history(uow: UnitOfWork, work: MergeWork, _: int | None) -> MergedBatch:
    """What happened to the subscriptions, in one history with the account's own."""
    _require_account(uow, work)
    values = {"merged_id": work.merged_id, "user_id": work.user_id, "most": MAX_MOVED_ROWS}
    return _batch(uow.session.scalar(_MOVE_HISTORY, values) or 0)


def _move_entries(uow: UnitOfWork, work: MergeWork, _: int | None) -> MergedBatch:
    """What shows that the person agreed."""
    _require_account(uow, work)
    values = {"merge_id": work.merge_id, "most": MAX_MOVED_ROWS}
    return _batch(uow.session.scalar(_MOVE_ENTRIES, values) or 0)


def _move_reports(uow: UnitOfWork, work: MergeWork, _: int | None) -> MergedBatch:
    """The person's reports of lists: each list has one of a person."""
    _require_account(uow, work)
    same = aliased(ListReport)
    has_same = exists().where(same.list_id == ListReport.list_id, same.user_id == work.user_id)
    theirs = ListReport.user_id == work.merged_id
    twice = delete(ListReport).where(theirs, has_same)
    uow.session.execute(twice.execution_options(synchronize_session=False))
    return _moving(ListReport.user_id)(uow, work, None)


def _moving(owner: InstrumentedAttribute[Any]) -> MergeStage:
    model = owner.class_

    def move_batch(uow: UnitOfWork, work: MergeWork, _: int | None) -> MergedBatch:
        _require_account(uow, work)
        found = select(model.id).where(owner == work.merged_id)
        if model is WebhookDelivery:
            # Which the index has.
            found = found.where(WebhookDelivery.answer.is_not(None))
        ids = list(uow.session.scalars(found.order_by(model.id).limit(MAX_MOVED_ROWS)))
        moved = update(model).where(model.id.in_(ids)).values({owner: work.user_id})
        uow.session.execute(moved.execution_options(synchronize_session=False))
        return _batch(len(ids))

    return move_batch


def _require_account(uow: UnitOfWork, work: MergeWork) -> None:
    if not locks.share_person(uow, work.user_id):
        raise AccountGone


def _batch(rows: int) -> MergedBatch:
    return MergedBatch(rows, 0 if rows == MAX_MOVED_ROWS else None)


# The lists come first: mail goes by them. Links of theirs come later, for records that moved.
STAGES: Mapping[str, MergeStage] = {
    "lists": merge_lists,
    "links": _moving(MailedLink.user_id),
    "mails": _moving(AccountMail.user_id),
    "reports": _move_reports,
    "history": _move_history,
    "consent": _move_entries,
    # What receivers answered, which an erasure blanks.
    "answers": _moving(WebhookDelivery.person_id),
}
