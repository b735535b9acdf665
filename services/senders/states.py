"""Marks senders as failing or working.

A sender is a registered source of reports, such as a mail provider. The warnings of a failing
sender contain the reason.
"""

from collections.abc import Collection

from sqlalchemy import func, select, update

from models import Sender, SenderState
from services.senders import notices
from services.senders.notices import FailureReason
from services.senders.senders import is_not_deleted
from storage.unit_of_work import UnitOfWork


def mark_failing(uow: UnitOfWork, sender_id: int, reason: FailureReason) -> None:
    """Mark a sender as failing, unless it is paused, deleted or already failing for this reason."""
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
    """Update a sender's state and warnings after a worker applied request bodies of the sender.

    A failing sender becomes working again, because the bodies prove that its requests arrive. But
    if Amazon SNS has ended the subscription to the sender's topic, the sender stays failing until a
    new subscription is confirmed, because Amazon SNS can still deliver earlier messages.

    Args:
        has_reports: whether the bodies contain readable events.
        is_confirmed: whether the bodies led to a confirmed subscription to the sender's topic.
        warnings: the warnings of the latest body.
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
    """Lock and return a sender, or return ``None`` if it was deleted.

    The lock doesn't block the API from storing new request bodies of the sender.
    """
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
    """Change the state and the warnings, but keep the time of the owner's latest change."""
    statement = update(Sender).where(Sender.id == sender.id)
    statement = statement.values(
        state=state.value,
        warnings=sorted(warnings),
        last_report_at=func.now() if has_reports else Sender.last_report_at,
        updated_at=Sender.updated_at,
    )
    uow.session.execute(statement.execution_options(synchronize_session=False))
