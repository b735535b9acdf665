"""The end of an API key, and what it means for the webhook endpoints that belong to it."""

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
TOLD_BEFORE = timedelta(days=14)
FOLLOW_EXPIRY = register_maintenance(
    "webhooks.expire", every=timedelta(minutes=1), run=lambda resources, _: follow_expiry(resources)
)
_MAX_KEYS = 1_000


def revoke_key(
    uow: UnitOfWork, *, key_id: int, user_id: int | None = None, keep_endpoints: bool = False
) -> int:
    """Revoke a key as ``api_keys.revoke`` does, and end its endpoints and those of keys it made.

    ``keep_endpoints``: they are the account's own from now on, and end with no key.
    """
    revoked = api_keys.revoke(uow, key_id=key_id, user_id=user_id)
    if keep_endpoints:
        theirs = WebhookEndpoint.key_id.in_(api_keys.family(key_id))
        uow.session.execute(update(WebhookEndpoint).where(theirs).values(key_id=None))
    else:
        owner_id = uow.session.get_one(ApiKey, key_id).user_id
        ended = {each.id for each in live_of_key(uow, key_id)}
        webhook_endpoints.end(uow, owner_id, ended, ENDED_WITH_KEY)
    return revoked


def live_of_key(uow: UnitOfWork, key_id: int) -> list[WebhookEndpoint]:
    """The endpoints of a key and of the keys that it made which have not ended, newest first."""
    return webhook_endpoints.live_where(uow, WebhookEndpoint.key_id.in_(api_keys.family(key_id)))


def follow_expiry(resources: Resources) -> int:
    """Pause the endpoints of expired keys, tell their owners, and tell them two weeks before.

    Returns the number of mails. A mail is written in the transaction of what it tells, under the
    lock of its person, so it is sent once, and not after an erasure.
    """
    due = resources.database.rows(_DUE, before=TOLD_BEFORE, limit=_MAX_KEYS)
    mails = 0
    for key_id, user_id in due:
        with resources.unit_of_work() as uow:
            mails += _follow(uow, key_id, user_id)
    return mails


def _follow(uow: UnitOfWork, key_id: int, user_id: int) -> bool:
    of_person = select(User).where(User.id == user_id, User.erased_at.is_(None))
    person = uow.session.scalar(of_person.with_for_update(key_share=True))
    of_key = select(ApiKey, ApiKey.expires_at <= func.now())
    of_key = of_key.where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
    found = uow.session.execute(of_key.with_for_update()).one_or_none()
    row = WebhookEndpoint
    active = select(row).where(row.key_id == key_id, row.state == EndpointState.ACTIVE)
    endpoints = uow.session.scalars(active.order_by(row.id).with_for_update()).all()
    if person is None or found is None or not endpoints:
        return False
    key, has_expired = found
    if has_expired:
        for each in endpoints:
            each.state, each.reason, each.due_at = EndpointState.PAUSED, KEY_EXPIRED, None
        words = f"has expired. Paused now: {_named(endpoints)}."
    elif key.expiry_told_at is None:
        key.expiry_told_at = func.now()
        words = f"expires on {key.expires_at:%Y-%m-%d}. Paused then: {_named(endpoints)}."
    else:
        return False
    account_mails.mail_person(uow, MailKind.KEY_EXPIRES, person, f"{key.last_four} {words}")
    return True


def _named(endpoints: Sequence[WebhookEndpoint]) -> str:
    ids = ", ".join(str(each.id) for each in endpoints)
    return f"webhook endpoint{'s' * (len(endpoints) > 1)} {ids}"


_DUE = Statement("""
SELECT DISTINCT k.id, k.user_id
FROM webhook_endpoints AS e JOIN api_keys AS k ON k.id = e.key_id
WHERE e.state = 'active' AND k.revoked_at IS NULL AND (k.expires_at <= now()
    OR k.expiry_told_at IS NULL AND k.expires_at <= now() + :before)
LIMIT :limit
""")
