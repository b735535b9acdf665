"""Signs webhook requests as defined by Standard Webhooks 1.0.

Webhook secrets are encrypted in the database. After a rotation of the secret, requests are signed
with the old and the new secret for a day. Receivers need to verify only one of the signatures.
"""

import base64
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import ColumnElement, func, or_, select, update
from standardwebhooks import Webhook

from models import WebhookSecret
from storage.encryption import WrappedKey
from storage.unit_of_work import UnitOfWork

FORMER_SECRET_LIFETIME = timedelta(hours=24)
# The maximum number of unexpired secrets per endpoint. The number of secrets is limited, because
# each unexpired secret adds a signature to each webhook request.
MAX_LIVE_SECRETS = 10
SECRET_PREFIX = "whsec_"  # noqa: S105 - the beginning of every secret
_SECRET_BYTES = 32


def create_secret(uow: UnitOfWork, endpoint_id: int) -> str:
    """Let the endpoint's existing secrets expire within a day."""
    ends_at = func.least(WebhookSecret.expires_at, func.now() + FORMER_SECRET_LIFETIME)
    former = update(WebhookSecret).where(WebhookSecret.endpoint_id == endpoint_id)
    uow.session.execute(former.values(expires_at=ends_at))
    plain = secrets.token_bytes(_SECRET_BYTES)
    context = f"webhook-{secrets.token_hex(16)}"
    wrapped = uow.key_wrapper.wrap(plain, context)
    secret = WebhookSecret(
        endpoint_id=endpoint_id,
        context=context,
        wrapped_key=wrapped.data,
        wrapped_by=wrapped.wrapped_by,
    )
    uow.session.add(secret)
    return SECRET_PREFIX + base64.b64encode(plain).decode()


def count_live_secrets(uow: UnitOfWork, endpoint_id: int) -> int:
    return uow.session.scalar(select(func.count()).where(*_are_live(endpoint_id))) or 0


def load_live_secrets(uow: UnitOfWork, endpoint_id: int) -> list[bytes]:
    query = select(WebhookSecret).where(*_are_live(endpoint_id))
    return [
        uow.key_wrapper.unwrap(WrappedKey(row.wrapped_by, row.wrapped_key), row.context)
        for row in uow.session.scalars(query.order_by(WebhookSecret.id.desc()))
    ]


def _are_live(endpoint_id: int) -> tuple[ColumnElement[bool], ...]:
    is_live = or_(WebhookSecret.expires_at.is_(None), WebhookSecret.expires_at > func.now())
    return WebhookSecret.endpoint_id == endpoint_id, is_live


def serialise_event(event: dict[str, Any]) -> bytes:
    """Return the body of a webhook. ``event`` is in the format of API responses."""
    content = {"type": event["type"], "timestamp": event["occurred_at"], "data": event}
    return orjson.dumps(content)


def build_message_id(event_id: int) -> str:
    """Return an id for all attempts and endpoints, so that receivers recognise duplicates."""
    return f"evt_{event_id}"


def sign_message(
    keys: Sequence[bytes], message_id: str, sent_at: datetime, body: bytes
) -> dict[str, str]:
    timestamp = sent_at.astimezone(UTC).replace(microsecond=0)
    signatures = [Webhook(key).sign(message_id, timestamp, body.decode()) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(timestamp.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
