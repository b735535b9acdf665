"""Visits: for an hour after the mailed link, one browser acts for its person at one owner's lists.

The mailed token is used up when the visit begins, and the browser gets a secret of its own. So a
mail that is passed on later opens nothing.
"""

from dataclasses import dataclass

from sqlalchemy import func

from core.errors import DomainError
from core.keyring import Keyring
from core.refusals.people import PREFERENCES_LINK_INVALID, PREFERENCES_LINK_USED, VISIT_OVER
from models import MailedLink, MailingList, User
from services.mailing import lists
from services.people import accounts, mailed_tokens
from services.people.mailed_tokens import Purpose
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Visit:
    """A person, and the list by which they came: the visit is about its owner's lists."""

    person: User
    mailing_list: MailingList

    @property
    def owner_id(self) -> int:
        return self.mailing_list.user_id


def read_link(uow: UnitOfWork, keyring: Keyring, secret: str) -> MailedLink:
    """The mailed link, which is opened by no look at it.

    Raises ``preferences_link.invalid``, ``preferences_link.used``.
    """
    try:
        found = mailed_tokens.read(uow, keyring, Purpose.OPEN_PREFERENCES, secret)
    except DomainError:
        raise PREFERENCES_LINK_INVALID() from None
    if found.used_at is not None:
        raise PREFERENCES_LINK_USED()
    return found


def begin(uow: UnitOfWork, keyring: Keyring, secret: str) -> str:
    """Use the mailed link up; returns the secret of the visit. Raises what ``read_link`` does."""
    opened = read_link(uow, keyring, secret)
    try:
        mailed_tokens.use(uow, opened)
    except DomainError:
        raise PREFERENCES_LINK_USED() from None
    return mailed_tokens.make(
        uow,
        keyring,
        Purpose.VISIT_PREFERENCES,
        user_id=opened.user_id,
        list_id=opened.list_id,
    )


def read(uow: UnitOfWork, keyring: Keyring, secret: str | None) -> Visit:
    """Raises ``visit.over``."""
    found = _find(uow, keyring, secret)
    if found is None or found.used_at is not None:
        raise VISIT_OVER()
    assert found.list_id is not None
    assert found.user_id is not None
    person = accounts.find(uow, found.user_id)
    if person is None or person.erased_at is not None:
        raise VISIT_OVER()
    return Visit(person, lists.get(uow, found.list_id, archived=True))


def end(uow: UnitOfWork, keyring: Keyring, secret: str | None) -> None:
    """The secret opens nothing any more; one that is over already does no harm."""
    found = _find(uow, keyring, secret)
    if found is not None and found.used_at is None:
        found.used_at = func.now()


def _find(uow: UnitOfWork, keyring: Keyring, secret: str | None) -> MailedLink | None:
    if not secret:
        return None
    try:
        return mailed_tokens.read(uow, keyring, Purpose.VISIT_PREFERENCES, secret)
    except DomainError:
        return None
