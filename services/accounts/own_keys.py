"""Creates API keys that users request."""

from collections.abc import Collection
from datetime import datetime

from core.errors.access import AUTH_SCOPE_NOT_GRANTABLE
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import ApiKey
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
    expires_at: datetime | None,
) -> tuple[ApiKey, str]:
    """Create an API key, and notify the user by mail."""
    if scopes is not None and Scope.DELIVERY in scopes:
        raise AUTH_SCOPE_NOT_GRANTABLE()
    sessions.lock_caller(uow, caller)
    quotas.require_quota(uow, caller.user_id, PlanQuota.KEYS)
    key, secret = api_keys.create_key(
        uow,
        user_id=caller.user_id,
        name=name,
        scopes=scopes,
        expires_at=expires_at,
        maker_id=caller.key_id,
    )
    person = accounts.get_user(uow, caller.user_id)
    limit = account_mails.HOURLY_LIMIT
    account_mails.enqueue_mail(uow, MailKind.NEW_KEY, person, key.last_four, limit=limit)
    return key, secret
