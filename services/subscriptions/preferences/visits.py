"""Visits: the hour in which one browser shows a reader's preferences."""

from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import func

from core.errors import DomainError
from core.errors.people import PREFERENCES_LINK_INVALID, PREFERENCES_LINK_USED, VISIT_OVER
from models import (
    MailedLink,
    MailingList,
    User,
)
from services.accounts import accounts, mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Visit:
    """A person, and the list by which they came: the visit is about its owner's lists."""

    person: User
    mailing_list: MailingList

    @property
    def owner_id(self) -> int:
        return self.mailing_list.user_id


def read_link(uow: UnitOfWork, secret: str) -> MailedLink:
    """The mailed link, which is opened by no look at it.

    Raises ``preferences_link.invalid``, ``preferences_link.used``.
    """
    purpose, invalid = Purpose.OPEN_PREFERENCES, PREFERENCES_LINK_INVALID
    found = mailed_tokens.read(uow, purpose, secret, invalid=invalid)
    if found.used_at is not None:
        raise PREFERENCES_LINK_USED()
    if _person_of(uow, found) is None:
        raise invalid()
    return found


def begin(uow: UnitOfWork, secret: str) -> str:
    """Use the mailed link up; returns the secret of the visit. Raises what ``read_link`` does."""
    opened = read_link(uow, secret)
    mailed_tokens.use(uow, opened, used=PREFERENCES_LINK_USED)
    return mailed_tokens.make(
        uow,
        Purpose.VISIT_PREFERENCES,
        user_id=opened.user_id,
        list_id=opened.list_id,
        email=opened.email,
    )


def read(uow: UnitOfWork, secret: str | None) -> Visit:
    """Raises ``visit.over``."""
    found = _find(uow, secret)
    assert found.list_id is not None
    person = _person_of(uow, found)
    if person is None:
        raise VISIT_OVER()
    return Visit(person, lists.get(uow, found.list_id, archived=True))


def end(uow: UnitOfWork, secret: str | None) -> None:
    """The secret opens nothing any more; one that is over already does no harm."""
    with suppress(DomainError):
        _find(uow, secret).used_at = func.now()


def _person_of(uow: UnitOfWork, found: MailedLink) -> User | None:
    """Return the person, if the mailbox that got the link is theirs to this day."""
    assert found.user_id is not None
    person = accounts.find(uow, found.user_id)
    return person if person is not None and person.email == found.email else None


def _find(uow: UnitOfWork, secret: str | None) -> MailedLink:
    """Raises ``visit.over``."""
    if not secret:
        raise VISIT_OVER()
    found = mailed_tokens.read(uow, Purpose.VISIT_PREFERENCES, secret, invalid=VISIT_OVER)
    if found.used_at is not None:
        raise VISIT_OVER()
    return found
