"""The secrets of endpoints, and the headers that they sign (Standard Webhooks 1.0).

A secret is stored encrypted under the encryption keys. For a day after a rotation the former secret
signs too: a receiver may take either signature of the header.
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

FORMER_SECRET_LASTS = timedelta(hours=24)
# Each signs every event: the header has so many signatures.
MAX_LIVE_SECRETS = 10
SECRET_PREFIX = "whsec_"  # noqa: S105 - the beginning of every secret
_SECRET_BYTES = 32


def new_secret(uow: UnitOfWork, endpoint_id: int) -> str:
    """Another secret of the endpoint; the former ones expire within a day."""
    ends_at = func.least(WebhookSecret.expires_at, func.now() + FORMER_SECRET_LASTS)
    former = update(WebhookSecret).where(WebhookSecret.endpoint_id == endpoint_id)
    uow.session.execute(former.values(expires_at=ends_at))
    plain = secrets.token_bytes(_SECRET_BYTES)
    context = f"webhook-{secrets.token_hex(16)}"
    wrapped = uow.key_wrapper.wrap(plain, context)
    kept = {"wrapped_key": wrapped.data, "wrapped_by": wrapped.wrapped_by}
    uow.session.add(WebhookSecret(endpoint_id=endpoint_id, context=context, **kept))
    return SECRET_PREFIX + base64.b64encode(plain).decode()


def count_live(uow: UnitOfWork, endpoint_id: int) -> int:
    """Return how many secrets sign now."""
    return uow.session.scalar(select(func.count()).where(*_live(endpoint_id))) or 0


def live_secrets(uow: UnitOfWork, endpoint_id: int) -> list[bytes]:
    """The secrets that sign now, the newest one first; raises ``Tampered``."""
    query = select(WebhookSecret).where(*_live(endpoint_id))
    return [
        uow.key_wrapper.unwrap(WrappedKey(row.wrapped_by, row.wrapped_key), row.context)
        for row in uow.session.scalars(query.order_by(WebhookSecret.id.desc()))
    ]


def _live(endpoint_id: int) -> tuple[ColumnElement[bool], ...]:
    lives = or_(WebhookSecret.expires_at.is_(None), WebhookSecret.expires_at > func.now())
    return WebhookSecret.endpoint_id == endpoint_id, lives


def body_of(event: dict[str, Any]) -> bytes:
    """Return what is sent of an event, which is as the API shows it."""
    content = {"type": event["type"], "timestamp": event["occurred_at"], "data": event}
    return orjson.dumps(content)


def message_id_of(event_id: int) -> str:
    """The same at each try and at each endpoint, so that a receiver knows what it has."""
    return f"evt_{event_id}"


def signed_headers(
    keys: Sequence[bytes], message_id: str, sent_at: datetime, body: bytes
) -> dict[str, str]:
    text, whole = body.decode(), sent_at.astimezone(UTC).replace(microsecond=0)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(whole.timestamp())),
        "webhook-signature": " ".join(Webhook(key).sign(message_id, whole, text) for key in keys),
    }
