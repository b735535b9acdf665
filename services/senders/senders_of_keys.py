"""Deletes the senders that belong to revoked API keys.

A sender belongs to the API key that created it, or that last changed the sender's secret, key or
topic.
"""

from sqlalchemy import update

from core.ids import AccountId
from models import ApiKey, Sender
from services.access import api_keys
from services.senders import senders
from services.webhooks import endpoints_of_keys
from storage.unit_of_work import UnitOfWork


def revoke_key(
    uow: UnitOfWork,
    *,
    key_id: int,
    account_id: AccountId | None = None,
    keep_endpoints: bool = False,
) -> int:
    """Revoke an API key and all keys that it created, and return their number.

    ``keep_endpoints``: whether to transfer the webhook endpoints and senders of the keys to the
    account. Otherwise, the endpoints are permanently disabled, and the senders deleted.
    """
    revoked = endpoints_of_keys.revoke_key(
        uow, key_id=key_id, account_id=account_id, keep_endpoints=keep_endpoints
    )
    if keep_endpoints:
        belongs_to_key = Sender.key_id.in_(api_keys.select_key_family(key_id))
        uow.session.execute(update(Sender).where(belongs_to_key).values(key_id=None))
    else:
        account_id = uow.session.get_one(ApiKey, key_id).user_id
        senders.end_senders(uow, account_id, {each.id for each in list_senders_of_key(uow, key_id)})
    return revoked


def list_senders_of_key(uow: UnitOfWork, key_id: int) -> list[Sender]:
    """Include the senders of the keys that the API key created."""
    return senders.find_senders(uow, Sender.key_id.in_(api_keys.select_key_family(key_id)))
