"""Creates, finds and uses mailed tokens, the single-use secrets in mailed links.

Opening a mailed link proves that the person can read mail sent to the address. The worker creates
the token, 256 random bits, when it sends the mail, so the database stores only the token's HMAC.
Mail scanners open links, so a mailed link must not change anything until the person confirms the
action on the linked page.
"""

import secrets
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import func, select, update

from core.errors.catalogue import ErrorType
from core.errors.people import LINK_INVALID, LINK_USED
from core.ids import PersonId
from models import MailedLink
from storage.unit_of_work import UnitOfWork, record_moment_once

_PURPOSE = "mailed-link"


class Purpose(StrEnum):
    CONFIRM_SUBSCRIPTION = "subscription.confirm"
    REGISTER = "account.register"
    RESET_PASSWORD = "account.reset_password"  # noqa: S105 - a name
    CHANGE_ADDRESS = "account.change_address"
    UNDO_ADDRESS = "account.undo_address"
    # The purpose of the login link that `pressroom up` prints. No mail contains such a link.
    LOG_IN = "account.log_in"
    OPEN_PREFERENCES = "preferences.open"
    # The purpose of the cookie that a browser receives after opening a mailed link to the
    # preferences.
    VISIT_PREFERENCES = "preferences.visit"


TOKEN_LIFETIMES = {
    Purpose.CONFIRM_SUBSCRIPTION: timedelta(days=7),
    Purpose.REGISTER: timedelta(hours=1),
    Purpose.RESET_PASSWORD: timedelta(hours=1),
    Purpose.CHANGE_ADDRESS: timedelta(hours=1),
    # An undo link is valid for three days, so that the owner can still use it after a weekend.
    Purpose.UNDO_ADDRESS: timedelta(hours=72),
    Purpose.LOG_IN: timedelta(minutes=30),
    Purpose.OPEN_PREFERENCES: timedelta(hours=1),
    Purpose.VISIT_PREFERENCES: timedelta(hours=1),
}


def create_token(
    uow: UnitOfWork,
    purpose: Purpose,
    *,
    person_id: PersonId | None,
    list_id: int | None = None,
    email: str | None = None,
    created_at: datetime | None = None,
    submitted: dict[str, Any] | None = None,
) -> str:
    """Create a mailed token, and return its secret.

    ``submitted`` contains the form values that the person must confirm.
    """
    secret = secrets.token_urlsafe(32)
    uow.session.add(
        MailedLink(
            purpose=purpose,
            user_id=person_id,
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
    """Return the mailed token that has the given secret, even if the token has been used.

    Raises the error ``invalid`` for an unknown or expired token.
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
    if not record_moment_once(uow, MailedLink.used_at, MailedLink.id == link.id):
        raise used()


def move_tokens_to_list(
    uow: UnitOfWork, *, person_id: PersonId, list_id: int, to_list_id: int
) -> int:
    table = MailedLink
    unused = (table.user_id == person_id, table.list_id == list_id, table.used_at.is_(None))
    statement = update(table).where(*unused).values(list_id=to_list_id).returning(table.id)
    return len(uow.session.execute(statement).all())
