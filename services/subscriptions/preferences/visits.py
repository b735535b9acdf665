"""Starts and ends visits, which are sessions on the preferences page for one owner's lists.

A visit starts when a person opens a mailed link, requires no login, and expires after an hour.
"""

from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import func

from core.errors import DomainError
from core.errors.people import PREFERENCES_LINK_INVALID, PREFERENCES_LINK_USED, VISIT_OVER
from models import MailedLink, MailingList, User
from services.accounts import accounts, mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Visit:
    """A person's session on the preferences page for the lists of one owner.

    Attributes:
        mailing_list: the list on whose page the person requested the link.
    """

    person: User
    mailing_list: MailingList

    @property
    def owner_id(self) -> int:
        return self.mailing_list.user_id


def read_link(uow: UnitOfWork, secret: str) -> MailedLink:
    """Verify a mailed link to the preferences page, without marking the link as used.

    Raises ``preferences_link.invalid``, ``preferences_link.used``.
    """
    link = mailed_tokens.read_token(
        uow, Purpose.OPEN_PREFERENCES, secret, invalid=PREFERENCES_LINK_INVALID
    )
    if link.used_at is not None:
        raise PREFERENCES_LINK_USED()
    if _find_person(uow, link) is None:
        raise PREFERENCES_LINK_INVALID()
    return link


def begin_visit(uow: UnitOfWork, secret: str) -> str:
    """Start a visit, mark the mailed link as used, and return the secret of the visit.

    Raises the same errors as ``read_link``.
    """
    link = read_link(uow, secret)
    mailed_tokens.use_token(uow, link, used=PREFERENCES_LINK_USED)
    return mailed_tokens.create_token(
        uow,
        Purpose.VISIT_PREFERENCES,
        user_id=link.user_id,
        list_id=link.list_id,
        email=link.email,
    )


def read_visit(uow: UnitOfWork, secret: str | None) -> Visit:
    """Return the visit with the given secret, or raise ``visit.over``."""
    link = _read_visit_link(uow, secret)
    assert link.list_id is not None
    person = _find_person(uow, link)
    if person is None:
        raise VISIT_OVER()
    return Visit(person, lists.get_list(uow, link.list_id, archived=True))


def end_visit(uow: UnitOfWork, secret: str | None) -> None:
    """End the visit with the given secret, unless the visit has already ended."""
    with suppress(DomainError):
        _read_visit_link(uow, secret).used_at = func.now()


def _find_person(uow: UnitOfWork, link: MailedLink) -> User | None:
    """Return the recipient of a link, or ``None`` if the recipient's e-mail address has changed."""
    assert link.user_id is not None
    person = accounts.find_user(uow, link.user_id)
    return person if person is not None and person.email == link.email else None


def _read_visit_link(uow: UnitOfWork, secret: str | None) -> MailedLink:
    """Return the row in ``mailed_links`` that stores a visit, or raise ``visit.over``."""
    if not secret:
        raise VISIT_OVER()
    link = mailed_tokens.read_token(uow, Purpose.VISIT_PREFERENCES, secret, invalid=VISIT_OVER)
    if link.used_at is not None:
        raise VISIT_OVER()
    return link
