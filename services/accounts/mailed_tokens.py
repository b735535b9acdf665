"""Mailed tokens: secrets in links that are mailed to a person. Each works once.

A person who has the token can read the mail of its address. The token is 256 random bits, and the
database keeps only an HMAC of it. It is made just before the mail is sent, so it is stored nowhere.
Opening its page changes nothing until the person confirms, since mail scanners follow links.
"""

import secrets
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import func, select, update

from core.errors.catalogue import ErrorType
from core.errors.people import LINK_INVALID, LINK_USED
from models import MailedLink
from storage.unit_of_work import UnitOfWork, record_moment_once

_PURPOSE = "mailed-link"


class Purpose(StrEnum):
    CONFIRM_SUBSCRIPTION = "subscription.confirm"
    REGISTER = "account.register"
    RESET_PASSWORD = "account.reset_password"  # noqa: S105 - a name
    CHANGE_ADDRESS = "account.change_address"
    UNDO_ADDRESS = "account.undo_address"
    OPEN_PREFERENCES = "preferences.open"
    # The one that is never mailed: a browser gets it for the mailed one.
    VISIT_PREFERENCES = "preferences.visit"


TOKEN_LIFETIMES = {
    Purpose.CONFIRM_SUBSCRIPTION: timedelta(days=7),
    Purpose.REGISTER: timedelta(hours=1),
    Purpose.RESET_PASSWORD: timedelta(hours=1),
    Purpose.CHANGE_ADDRESS: timedelta(hours=1),
    # Long enough for a person who was away over a weekend.
    Purpose.UNDO_ADDRESS: timedelta(hours=72),
    Purpose.OPEN_PREFERENCES: timedelta(hours=1),
    Purpose.VISIT_PREFERENCES: timedelta(hours=1),
}


def create_token(
    uow: UnitOfWork,
    purpose: Purpose,
    *,
    user_id: int | None,
    list_id: int | None = None,
    email: str | None = None,
    asked_at: datetime | None = None,
    submitted: dict[str, Any] | None = None,
) -> str:
    """The secret of a new token for a person, an address, or both.

    Args:
        asked_at: when the mail was asked for, if tokens must stay in that order.
        submitted: what the person is to confirm beside the token's purpose.
    """
    secret = secrets.token_urlsafe(32)
    uow.session.add(
        MailedLink(
            purpose=purpose,
            user_id=user_id,
            list_id=list_id,
            email=email,
            submitted=submitted,
            secret_hmac=uow.settings.keyring.signer(_PURPOSE).digest(secret.encode()),
            expires_at=func.now() + TOKEN_LIFETIMES[purpose],
            created_at=func.now() if asked_at is None else asked_at,
        )
    )
    return secret


def read_token(
    uow: UnitOfWork, purpose: Purpose, secret: str, *, invalid: ErrorType = LINK_INVALID
) -> MailedLink:
    """The token behind a secret; changes nothing. Raises ``invalid``."""
    is_it = MailedLink.secret_hmac.in_(
        uow.settings.keyring.signer(_PURPOSE).digests(secret.encode())
    )
    lives = MailedLink.purpose == purpose, MailedLink.expires_at > func.now()
    link = uow.session.scalar(select(MailedLink).where(is_it, *lives))
    if link is None:
        raise invalid()
    return link


def use_token(uow: UnitOfWork, opened: MailedLink, *, used: ErrorType = LINK_USED) -> None:
    """Use the token up; raises ``used`` when it was used before."""
    if not record_moment_once(uow, MailedLink.used_at, MailedLink.id == opened.id):
        raise used()


def move_to_list(uow: UnitOfWork, *, user_id: int, list_id: int, to_list_id: int) -> int:
    """Move the person's unused tokens from one list to another; returns their number."""
    row = MailedLink
    unused = row.user_id == user_id, row.list_id == list_id, row.used_at.is_(None)
    moved = update(row).where(*unused).values(list_id=to_list_id).returning(row.id)
    return len(uow.session.execute(moved).all())
