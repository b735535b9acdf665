"""Ends or pauses the webhook endpoints of an API key when the key is revoked or expires."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import func, select, update

from models import ApiKey, EndpointState, User, WebhookEndpoint
from services.access import api_keys
from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from services.jobs.maintenance import register_maintenance
from services.webhooks import webhook_endpoints
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

ENDED_WITH_KEY = "It ended with its API key."
KEY_EXPIRED = "Its API key expired."
NOTICE_BEFORE_EXPIRY = timedelta(days=14)
FOLLOW_EXPIRY = register_maintenance(
    "webhooks.expire", every=timedelta(minutes=1), run=lambda resources, _: follow_expiry(resources)
)
_MAX_KEYS = 1_000


def revoke_key(
    uow: UnitOfWork, *, key_id: int, user_id: int | None = None, keep_endpoints: bool = False
) -> int:
    """Revoke a key. End its endpoints, and the endpoints of keys that it created.

    ``keep_endpoints``: whether to keep the endpoints instead. They then belong to the account.
    """
    revoked = api_keys.revoke_key(uow, key_id=key_id, user_id=user_id)
    if keep_endpoints:
        belongs_to_key = WebhookEndpoint.key_id.in_(api_keys.select_key_family(key_id))
        uow.session.execute(update(WebhookEndpoint).where(belongs_to_key).values(key_id=None))
    else:
        owner_id = uow.session.get_one(ApiKey, key_id).user_id
        endpoint_ids = {each.id for each in live_of_key(uow, key_id)}
        webhook_endpoints.end_endpoints(uow, owner_id, endpoint_ids, ENDED_WITH_KEY)
    return revoked


def live_of_key(uow: UnitOfWork, key_id: int) -> list[WebhookEndpoint]:
    """Return the live endpoints of a key and of the keys that it created, newest first."""
    return webhook_endpoints.live_where(
        uow, WebhookEndpoint.key_id.in_(api_keys.select_key_family(key_id))
    )


_DUE = Statement("""
SELECT DISTINCT k.id, k.user_id
FROM webhook_endpoints AS e JOIN api_keys AS k ON k.id = e.key_id
WHERE e.state = 'active' AND k.revoked_at IS NULL AND (k.expires_at <= now()
    OR k.expiry_told_at IS NULL AND k.expires_at <= now() + :before)
LIMIT :limit
""")


def follow_expiry(resources: Resources) -> int:
    """Pause the endpoints of expired keys, and notify their owners then and two weeks before.

    Returns the number of mails. A mail is written in the transaction of the change that it reports,
    while the person is locked. It is therefore sent once, and never after an erasure.
    """
    due = resources.database.rows(_DUE, before=NOTICE_BEFORE_EXPIRY, limit=_MAX_KEYS)
    mails = 0
    for key_id, user_id in due:
        with resources.unit_of_work() as uow:
            mails += _follow_key(uow, key_id, user_id)
    return mails


def _follow_key(uow: UnitOfWork, key_id: int, user_id: int) -> bool:
    """Pause the endpoints of one key, or announce its expiry. Return whether a mail was sent."""
    of_person = select(User).where(User.id == user_id, User.erased_at.is_(None))
    person = uow.session.scalar(of_person.with_for_update(key_share=True))
    of_key = select(ApiKey, ApiKey.expires_at <= func.now())
    of_key = of_key.where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
    key_row = uow.session.execute(of_key.with_for_update()).one_or_none()
    table = WebhookEndpoint
    active = select(table).where(table.key_id == key_id, table.state == EndpointState.ACTIVE)
    endpoints = uow.session.scalars(active.order_by(table.id).with_for_update()).all()
    if person is None or key_row is None or not endpoints:
        return False
    key, has_expired = key_row
    if has_expired:
        for endpoint in endpoints:
            endpoint.state = EndpointState.PAUSED
            endpoint.reason = KEY_EXPIRED
            endpoint.due_at = None
        words = f"has expired. Paused now: {_endpoint_words(endpoints)}."
    elif key.expiry_told_at is None:
        key.expiry_told_at = func.now()
        words = f"expires on {key.expires_at:%Y-%m-%d}. Paused then: {_endpoint_words(endpoints)}."
    else:
        return False
    account_mails.enqueue_mail_to(uow, MailKind.KEY_EXPIRES, person, f"{key.last_four} {words}")
    return True


def _endpoint_words(endpoints: Sequence[WebhookEndpoint]) -> str:
    ids = ", ".join(str(each.id) for each in endpoints)
    return f"webhook endpoint{'s' * (len(endpoints) > 1)} {ids}"
