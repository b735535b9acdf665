"""Disables the webhook endpoints of revoked API keys, and pauses the endpoints of expired keys.

The senders of an expired key, which are registered sources of reports, are paused too.
"""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import func, select, update

from core.ids import AccountId
from models import ApiKey, EndpointState, Sender, SenderState, User, WebhookEndpoint
from services.access import api_keys
from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from services.jobs.maintenance import register_maintenance
from services.webhooks import webhook_endpoints
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

ENDED_WITH_KEY = "The API key of this endpoint was revoked."
KEY_EXPIRED = "The API key of this endpoint expired."
NOTICE_BEFORE_EXPIRY = timedelta(days=14)
PROCESS_EXPIRED_KEYS = register_maintenance(
    "webhooks.expire",
    every=timedelta(minutes=1),
    run=lambda resources, _: process_expired_keys(resources),
)
_MAX_KEYS = 1_000
# Finds API keys that have expired or will expire soon, if the keys own active webhook endpoints or
# senders. An API key that will expire soon is omitted if its owner has already been notified of the
# expiry.
_FIND_EXPIRING_KEYS = Statement("""
SELECT DISTINCT k.id, k.user_id FROM (
    SELECT key_id FROM webhook_endpoints WHERE state = 'active' AND key_id IS NOT NULL
    UNION ALL
    SELECT key_id FROM senders
    WHERE state <> 'paused' AND key_id IS NOT NULL AND deleted_at IS NULL
) AS e JOIN api_keys AS k ON k.id = e.key_id
WHERE k.revoked_at IS NULL AND (k.expires_at <= now()
    OR k.expiry_told_at IS NULL AND k.expires_at <= now() + :before)
LIMIT :limit
""")


def revoke_key(
    uow: UnitOfWork,
    *,
    key_id: int,
    account_id: AccountId | None = None,
    keep_endpoints: bool = False,
) -> int:
    """Revoke an API key and the keys that it created, and permanently disable their endpoints.

    ``keep_endpoints`` transfers the keys' endpoints to the account instead.
    """
    revoked = api_keys.revoke_key(uow, key_id=key_id, account_id=account_id)
    if keep_endpoints:
        belongs_to_key = WebhookEndpoint.key_id.in_(api_keys.select_key_family(key_id))
        uow.session.execute(update(WebhookEndpoint).where(belongs_to_key).values(key_id=None))
    else:
        account_id = uow.session.get_one(ApiKey, key_id).user_id
        endpoint_ids = {endpoint.id for endpoint in list_live_endpoints_of_key(uow, key_id)}
        webhook_endpoints.end_endpoints(uow, account_id, endpoint_ids, ENDED_WITH_KEY)
    return revoked


def list_live_endpoints_of_key(uow: UnitOfWork, key_id: int) -> list[WebhookEndpoint]:
    """Include the endpoints of the keys that this key created."""
    return webhook_endpoints.find_live_endpoints(
        uow, WebhookEndpoint.key_id.in_(api_keys.select_key_family(key_id))
    )


def process_expired_keys(resources: Resources) -> int:
    """Pause the endpoints and senders of expired keys, and return the number of mails to owners.

    An owner gets a mail two weeks before an API key with active endpoints or senders expires, and a
    mail after the expiry. The same transaction pauses the endpoints and senders of the expired key,
    or records the notice of the coming expiry. Each mail is therefore enqueued only once. The
    transaction also locks the recipient's row, so that no mail is sent to an erased person.
    """
    due = resources.database.rows(_FIND_EXPIRING_KEYS, before=NOTICE_BEFORE_EXPIRY, limit=_MAX_KEYS)
    mails = 0
    for key_id, account_id in due:
        with resources.unit_of_work() as uow:
            mails += _process_key(uow, key_id, account_id)
    return mails


def _process_key(uow: UnitOfWork, key_id: int, account_id: AccountId) -> bool:
    person_query = select(User).where(User.id == account_id, User.erased_at.is_(None))
    person = uow.session.scalar(person_query.with_for_update(key_share=True))
    key_query = select(ApiKey, ApiKey.expires_at <= func.now())
    key_query = key_query.where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
    key_row = uow.session.execute(key_query.with_for_update()).one_or_none()
    table = WebhookEndpoint
    active = select(table).where(table.key_id == key_id, table.state == EndpointState.ACTIVE)
    endpoints = uow.session.scalars(active.order_by(table.id).with_for_update()).all()
    unpaused = select(Sender).where(
        Sender.key_id == key_id, Sender.state != SenderState.PAUSED, Sender.deleted_at.is_(None)
    )
    senders = uow.session.scalars(unpaused.order_by(Sender.id).with_for_update()).all()
    if person is None or key_row is None or not (endpoints or senders):
        return False
    key, has_expired = key_row
    if has_expired:
        for endpoint in endpoints:
            endpoint.state = EndpointState.PAUSED
            endpoint.reason = KEY_EXPIRED
            endpoint.due_at = None
        for sender in senders:
            sender.state = SenderState.PAUSED
        details = f"has expired. Pressroom has paused {_describe(endpoints, senders)}."
    elif key.expiry_told_at is None:
        key.expiry_told_at = func.now()
        details = (
            f"expires on {key.expires_at:%Y-%m-%d}. Pressroom will then pause "
            f"{_describe(endpoints, senders)}."
        )
    else:
        return False
    account_mails.enqueue_mail(uow, MailKind.KEY_EXPIRES, person, f"{key.last_four} {details}")
    return True


def _describe(endpoints: Sequence[WebhookEndpoint], senders: Sequence[Sender]) -> str:
    parts = [_list_ids("webhook endpoint", endpoints), _list_ids("sender", senders)]
    return " and ".join(filter(None, parts))


def _list_ids(noun: str, rows: Sequence[WebhookEndpoint] | Sequence[Sender]) -> str:
    ids = ", ".join(str(row.id) for row in rows)
    return f"{noun}{'s' * (len(rows) > 1)} {ids}" if rows else ""
