"""Mailed tokens, which are single-use secrets in links that are mailed to a person.

A mailed token proves that a person can read the mail of an address. A token consists of 256 random
bits, and the database stores only the token's HMAC. The token itself is created just before the
mail is sent, so the token is never stored. Opening the linked page changes nothing until the person
confirms, because mail scanners follow links.
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
    # A browser receives this token in exchange for the mailed token, so it is never mailed.
    VISIT_PREFERENCES = "preferences.visit"


TOKEN_LIFETIMES = {
    Purpose.CONFIRM_SUBSCRIPTION: timedelta(days=7),
    Purpose.REGISTER: timedelta(hours=1),
    Purpose.RESET_PASSWORD: timedelta(hours=1),
    Purpose.CHANGE_ADDRESS: timedelta(hours=1),
    # A person can still undo a change after a weekend without reading mail.
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
    created_at: datetime | None = None,
    submitted: dict[str, Any] | None = None,
) -> str:
    """Create a token for a person, an address, or both, and return the token's secret.

    Args:
        created_at: the time of the request for the mail, if tokens must be ordered by this time.
        submitted: form fields that the person confirms together with the token's purpose.
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
            created_at=func.now() if created_at is None else created_at,
        )
    )
    return secret


def read_token(
    uow: UnitOfWork, purpose: Purpose, secret: str, *, invalid: ErrorType = LINK_INVALID
) -> MailedLink:
    """Return the unexpired token with this secret, without using it up. Raises ``invalid``.

    The token may already have been used.
    """
    hmacs = uow.settings.keyring.signer(_PURPOSE).digests(secret.encode())
    query = select(MailedLink).where(
        MailedLink.secret_hmac.in_(hmacs),
        MailedLink.purpose == purpose,
        MailedLink.expires_at > func.now(),
    )
    link = uow.session.scalar(query)
    if link is None:
        raise invalid()
    return link


def use_token(uow: UnitOfWork, link: MailedLink, *, used: ErrorType = LINK_USED) -> None:
    """Mark a token as used. Raises ``used`` if the token has already been used."""
    if not record_moment_once(uow, MailedLink.used_at, MailedLink.id == link.id):
        raise used()


def move_tokens_to_list(uow: UnitOfWork, *, user_id: int, list_id: int, to_list_id: int) -> int:
    """Move a person's unused tokens from one list to another list, and return their number."""
    table = MailedLink
    unused = (table.user_id == user_id, table.list_id == list_id, table.used_at.is_(None))
    statement = update(table).where(*unused).values(list_id=to_list_id).returning(table.id)
    return len(uow.session.execute(statement).all())
