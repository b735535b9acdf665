"""Creates API keys that users request."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import func, select

from core.errors import access as errors
from core.errors.mailing import LIST_NOT_FOUND
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import ApiKey, MailingList
from services.access import api_keys, quotas, sessions
from services.access.caller import Caller
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from storage.unit_of_work import UnitOfWork


def create_own_key(
    uow: UnitOfWork,
    caller: Caller,
    *,
    name: str,
    scopes: Collection[Scope] | None,
    list_ids: Collection[int] | None = None,
    expires_at: datetime | None,
) -> tuple[ApiKey, str]:
    """Create an API key, and notify the user by mail."""
    sessions.lock_caller(uow, caller)
    if scopes is not None and Scope.DELIVERY in scopes:
        _require_sending(uow, caller, list_ids)
    quotas.require_quota(uow, caller.account_id, PlanQuota.KEYS)
    key, secret = api_keys.create_key(
        uow,
        account_id=caller.account_id,
        name=name,
        scopes=scopes,
        list_ids=list_ids,
        expires_at=expires_at,
        maker_id=caller.key_id,
    )
    notify_owner(uow, key)
    return key, secret


def notify_owner(uow: UnitOfWork, key: ApiKey) -> None:
    owner = accounts.get_owner(uow, key.user_id)
    kind = MailKind.NEW_KEY
    limit = account_mails.HOURLY_LIMIT
    if key.list_ids is not None:
        # The owner gets a mail about each limited key, because it can copy the lists' addresses.
        kind = MailKind.NEW_SENDING_KEY
        limit = account_mails.HOURLY_LIMIT_PER_DETAIL
    account_mails.enqueue_mail(uow, kind, owner, key.last_four, limit=limit)


def _require_sending(uow: UnitOfWork, caller: Caller, list_ids: Collection[int] | None) -> None:
    if list_ids is None:
        raise errors.AUTH_DELIVERY_LISTS_MISSING(needed_scope=Scope.DELIVERY)
    if not uow.settings.owners_send:
        raise errors.AUTH_DELIVERY_FORBIDDEN()
    if caller.session_id is None:
        # A stolen key could otherwise create a key that copies the lists' addresses.
        raise errors.AUTH_SESSION_NEEDED()
    is_open = (MailingList.user_id == caller.account_id, MailingList.archived_at.is_(None))
    query = select(func.count()).where(MailingList.id.in_(sorted(set(list_ids))), *is_open)
    if uow.session.scalar(query) != len(set(list_ids)):
        raise LIST_NOT_FOUND()
