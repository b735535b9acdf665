"""Stores the secrets and public keys with which Pressroom verifies the requests of senders.

The secrets and keys are encrypted in the database. A replaced secret or key stays valid for a day,
so that the owner has time to change the mail provider's settings.
"""

import base64
import secrets

from sqlalchemy import delete, func, select, update

from integrations.senders.port import SenderProvider
from models import SenderSecret
from services.webhooks.signing import FORMER_SECRET_LIFETIME, SECRET_PREFIX
from storage.unit_of_work import UnitOfWork

# The user name for HTTP Basic authentication, which is the same for all senders.
USERNAME = "pressroom"
_SECRET_BYTES = 32
# The maximum number of valid secrets or keys per sender. Each request is checked with every valid
# secret or key of its sender.
_MAX_LIVE_SECRETS = 5


def generate_secret(provider: SenderProvider) -> str:
    if provider is SenderProvider.GENERIC:
        return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    return secrets.token_urlsafe(_SECRET_BYTES)


def store_secret(uow: UnitOfWork, sender_id: int, value: str) -> None:
    table = SenderSecret
    ends_at = func.least(table.expires_at, func.now() + FORMER_SECRET_LIFETIME)
    former = update(table).where(table.sender_id == sender_id).values(expires_at=ends_at)
    uow.session.execute(former)
    newest = select(table.id).where(table.sender_id == sender_id)
    newest = newest.order_by(table.id.desc()).limit(_MAX_LIVE_SECRETS - 1)
    surplus = delete(table).where(table.sender_id == sender_id, table.id.not_in(newest))
    uow.session.execute(surplus.execution_options(synchronize_session=False))
    context = f"sender-{secrets.token_hex(16)}"
    wrapped = uow.key_wrapper.wrap(value.encode(), context)
    uow.session.add(
        SenderSecret(
            sender_id=sender_id,
            context=context,
            wrapped_key=wrapped.data,
            wrapped_by=wrapped.wrapped_by,
        )
    )
