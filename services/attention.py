"""Lists what needs the attention of an owner, such as failed imports and webhooks.

A later success removes a line. An owner can dismiss a line until the next failure.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import case, func, select, update

from models import ApiKey, EndpointState, MemberImport, WebhookEndpoint
from services.subscriptions.imports import records
from storage.unit_of_work import UnitOfWork


class AttentionKind(StrEnum):
    IMPORT = "import"
    WEBHOOK = "webhook"


class NextStep(StrEnum):
    RETRY_IMPORT = "retry_import"  # Retry the job, because the file isn't the cause.
    UPLOAD_AGAIN = "upload_again"
    # A webhook is paused by its owner, after three days of failures, or when its API key expires.
    RESUME_WEBHOOK = "resume_webhook"
    CHECK_RECEIVER = "check_receiver"


@dataclass(frozen=True)
class AttentionLine:
    """A failure that the owner can repair.

    Attributes:
        subject_id: the id of the import or webhook endpoint.
        name: the name of the file, or the URL. ``None`` for an import from an API request.
        at: when the import or the webhook began to fail, or else when the webhook's API key expired
            or the webhook was created.
    """

    kind: AttentionKind
    subject_id: int
    name: str | None
    at: datetime
    next_step: NextStep


def list_lines(uow: UnitOfWork, user_id: int) -> list[AttentionLine]:
    """Return failed imports first, because Pressroom doesn't retry a failed import."""
    return [*_list_imports(uow, user_id), *_list_webhooks(uow, user_id)]


def dismiss_line(uow: UnitOfWork, user_id: int, kind: AttentionKind, subject_id: int) -> bool:
    """Return whether the owner has such an import or webhook endpoint."""
    model = MemberImport if kind is AttentionKind.IMPORT else WebhookEndpoint
    statement = (
        update(model)
        .where(model.id == subject_id, model.user_id == user_id)
        .values(dismissed_at=func.now())
        .returning(model.id)
    )
    return uow.session.scalar(statement) is not None


def _list_imports(uow: UnitOfWork, user_id: int) -> list[AttentionLine]:
    lines = []
    for task in records.list_recent_failures(uow, user_id):
        assert task.finished_at is not None
        is_internal = task.error is not None and task.error["code"].startswith("job.")
        step = NextStep.RETRY_IMPORT if is_internal else NextStep.UPLOAD_AGAIN
        lines.append(
            AttentionLine(AttentionKind.IMPORT, task.id, task.filename, task.finished_at, step)
        )
    return lines


def _list_webhooks(uow: UnitOfWork, user_id: int) -> list[AttentionLine]:
    endpoint = WebhookEndpoint
    expired_at = case((ApiKey.expires_at <= func.now(), ApiKey.expires_at))
    at = func.coalesce(endpoint.failing_since, expired_at, endpoint.created_at)
    is_paused = endpoint.state == EndpointState.PAUSED
    query = (
        select(endpoint, at)
        .outerjoin(ApiKey, ApiKey.id == endpoint.key_id)
        .where(
            endpoint.user_id == user_id,
            endpoint.state != EndpointState.ENDED,
            is_paused | endpoint.failing_since.is_not(None),
            endpoint.dismissed_at.is_(None) | (endpoint.dismissed_at < at),
        )
        .order_by(endpoint.id.desc())
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
