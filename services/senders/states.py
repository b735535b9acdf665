"""Marks senders as failing or working. The warnings of a failing sender include the reasons."""

from collections.abc import Collection

from sqlalchemy import func, select, update

from models import Sender, SenderState
from services.senders import notices
from services.senders.notices import FailureReason
from services.senders.senders import is_not_deleted
from storage.unit_of_work import UnitOfWork


def mark_failing(uow: UnitOfWork, sender_id: int, reason: FailureReason) -> None:
    sender = _lock_sender(uow, sender_id)
    if sender is None or sender.state == SenderState.PAUSED or reason in sender.warnings:
        return
    warnings = {*sender.warnings, reason.value}
    _update_sender(uow, sender, SenderState.FAILING, warnings, has_reports=False)
    notices.report_failure(uow, sender, reason)


def record_bodies(
    uow: UnitOfWork,
    sender_id: int,
    *,
    has_reports: bool,
    is_confirmed: bool,
    warnings: Collection[str],
) -> None:
    """Update a sender's state and warnings after a worker processed some of its requests.

    If Amazon SNS has ended the subscription, the sender stays failing until a new one is confirmed.
    Amazon SNS can deliver earlier messages even after it has ended a subscription.
    """
    sender = _lock_sender(uow, sender_id)
    if sender is None or not (has_reports or is_confirmed):
        return
    state = SenderState(sender.state)
    unsubscribed = FailureReason.TOPIC_UNSUBSCRIBED.value
    is_unsubscribed = unsubscribed in sender.warnings and not is_confirmed
    has_recovered = state is SenderState.FAILING and not is_unsubscribed
    if is_unsubscribed:
        warnings = {*warnings, unsubscribed}
    elif state is not SenderState.PAUSED:
        was_reported = has_reports or sender.last_report_at is not None
        state = SenderState.WORKING if was_reported else SenderState.WAITING
    _update_sender(uow, sender, state, warnings, has_reports=has_reports)
    if has_recovered:
        notices.report_recovery(uow, sender, state)


def _lock_sender(uow: UnitOfWork, sender_id: int) -> Sender | None:
    """Lock a sender. The API can still store further requests of the sender."""
    query = select(Sender).where(Sender.id == sender_id, is_not_deleted())
    query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    return uow.session.scalar(query)


def _update_sender(
    uow: UnitOfWork,
    sender: Sender,
    state: SenderState,
    warnings: Collection[str],
    *,
    has_reports: bool,
) -> None:
    """Keep ``updated_at``, because it says when the owner last changed the sender."""
    statement = update(Sender).where(Sender.id == sender.id)
    statement = statement.values(
        state=state.value,
        warnings=sorted(warnings),
        last_report_at=func.now() if has_reports else Sender.last_report_at,
        updated_at=Sender.updated_at,
    )
    uow.session.execute(statement.execution_options(synchronize_session=False))
