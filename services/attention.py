"""Lists what needs the attention of an owner: failed imports, webhooks and senders.

A later success removes a line. An owner can dismiss a line until the next failure.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from sqlalchemy import ColumnElement, Select, case, func, select, update

from core.ids import AccountId
from models import (
    ApiKey,
    EndpointState,
    MemberImport,
    Sender,
    SenderState,
    WebhookEndpoint,
)
from services.senders.notices import FailureReason
from services.senders.senders import is_not_deleted
from services.subscriptions.imports import records
from storage.unit_of_work import UnitOfWork


class AttentionKind(StrEnum):
    IMPORT = "import"
    WEBHOOK = "webhook"
    SENDER = "sender"


class NextStep(StrEnum):
    RETRY_IMPORT = "retry_import"  # Retry the job, because the file isn't the cause.
    UPLOAD_AGAIN = "upload_again"
    # A webhook is paused by its owner, after three days of failures, or when its API key expires.
    RESUME_WEBHOOK = "resume_webhook"
    CHECK_RECEIVER = "check_receiver"
    CHECK_PROVIDER = "check_provider"
    RESUME_SENDER = "resume_sender"  # The sender is paused, and its API key has expired.


_MODELS: dict[AttentionKind, type[MemberImport | WebhookEndpoint | Sender]] = {
    AttentionKind.IMPORT: MemberImport,
    AttentionKind.WEBHOOK: WebhookEndpoint,
    AttentionKind.SENDER: Sender,
}
SubjectT = TypeVar("SubjectT", WebhookEndpoint, Sender)
_HAS_KEY_EXPIRED = ApiKey.expires_at <= func.now()


@dataclass(frozen=True)
class AttentionLine:
    """A failure that the owner can repair.

    Attributes:
        subject_id: the id of the import, webhook endpoint or sender.
        name: the name of the file or sender, or the URL. ``None`` for an import from an API
            request.
        at: when the import, webhook or sender began to fail or was paused. An estimate if this
            happened before migration 0143.
        reasons: why the sender is failing.
        error: why the import failed, or ``None``.
    """

    kind: AttentionKind
    subject_id: int
    name: str | None
    at: datetime
    next_step: NextStep
    reasons: tuple[FailureReason, ...] = ()
    error: str | None = None


def list_lines(uow: UnitOfWork, account_id: AccountId) -> list[AttentionLine]:
    """Return failed imports first, because Pressroom doesn't retry a failed import."""
    return [
        *_list_imports(uow, account_id),
        *_list_webhooks(uow, account_id),
        *_list_senders(uow, account_id),
    ]


def dismiss_line(
    uow: UnitOfWork, account_id: AccountId, kind: AttentionKind, subject_id: int
) -> bool:
    """Return whether the owner has such an import, webhook endpoint or sender."""
    model = _MODELS[kind]
    statement = (
        update(model)
        .where(model.id == subject_id, model.user_id == account_id)
        .values(dismissed_at=func.now())
        .returning(model.id)
    )
    return uow.session.scalar(statement) is not None


def _list_imports(uow: UnitOfWork, account_id: AccountId) -> list[AttentionLine]:
    lines = []
    for task in records.list_recent_failures(uow, account_id):
        assert task.finished_at is not None
        is_internal = task.error is not None and task.error["code"].startswith("job.")
        step = NextStep.RETRY_IMPORT if is_internal else NextStep.UPLOAD_AGAIN
        lines.append(
            AttentionLine(
                AttentionKind.IMPORT,
                task.id,
                task.filename,
                task.finished_at,
                step,
                error=str(task.error["message"]) if task.error else None,
            )
        )
    return lines


def _list_webhooks(uow: UnitOfWork, account_id: AccountId) -> list[AttentionLine]:
    endpoint = WebhookEndpoint
    expired_at = case((_HAS_KEY_EXPIRED, ApiKey.expires_at))
    is_paused = endpoint.state == EndpointState.PAUSED
    # A dismissed failure doesn't hide a later pause.
    paused_at = case((is_paused, endpoint.state_since))
    at = func.coalesce(paused_at, endpoint.failing_since, expired_at, endpoint.created_at)
    query = _select_failures(endpoint, account_id, at).where(
        endpoint.state != EndpointState.ENDED, is_paused | endpoint.failing_since.is_not(None)
    )
    return [
        AttentionLine(
            AttentionKind.WEBHOOK,
            row.id,
            row.url,
            began_at,
            NextStep.RESUME_WEBHOOK
            if row.state == EndpointState.PAUSED
            else NextStep.CHECK_RECEIVER,
        )
        for row, began_at in uow.session.execute(query)
    ]


def _list_senders(uow: UnitOfWork, account_id: AccountId) -> list[AttentionLine]:
    """Omit senders that their owner paused."""
    is_paused = Sender.state == SenderState.PAUSED
    was_active_until_expiry = Sender.state_since.is_(None) | (
        Sender.state_since >= ApiKey.expires_at
    )
    at = func.coalesce(Sender.state_since, Sender.last_report_at, Sender.created_at)
    query = _select_failures(Sender, account_id, at).where(
        is_not_deleted(),
        (Sender.state == SenderState.FAILING)
        | (is_paused & _HAS_KEY_EXPIRED & was_active_until_expiry),
    )
    return [
        AttentionLine(
            AttentionKind.SENDER,
            row.id,
            row.name,
            began_at,
            NextStep.RESUME_SENDER if row.state == SenderState.PAUSED else NextStep.CHECK_PROVIDER,
            tuple(each for each in FailureReason if each in row.warnings),
        )
        for row, began_at in uow.session.execute(query)
    ]


def _select_failures(
    model: type[SubjectT], account_id: AccountId, at: ColumnElement[datetime]
) -> Select[SubjectT, datetime]:
    """Return a query for the owner's rows that were not dismissed since ``at``, newest first."""
    return (
        select(model, at)
        .outerjoin(ApiKey, ApiKey.id == model.key_id)
        .where(
            model.user_id == account_id,
            model.dismissed_at.is_(None) | (model.dismissed_at < at),
        )
        .order_by(model.id.desc())
    )
