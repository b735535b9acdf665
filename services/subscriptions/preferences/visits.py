"""Starts and ends visits, which are sessions on the preferences page for one owner's lists.

A visit starts when a person opens a mailed link, requires no login, and expires after an hour.
"""

from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import func

from core.errors import DomainError
from core.errors.people import PREFERENCES_LINK_INVALID, PREFERENCES_LINK_USED, VISIT_OVER
from core.ids import AccountId
from models import MailedLink, MailingList, User
from services.accounts import accounts, mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Visit:
    person: User
    mailing_list: MailingList

    @property
    def owner_id(self) -> AccountId:
        return self.mailing_list.user_id


def read_link(uow: UnitOfWork, secret: str) -> Visit:
    """Read a link without marking it as used."""
    _, visit = _read_unused_link(uow, secret)
    return visit


def _read_unused_link(uow: UnitOfWork, secret: str) -> tuple[MailedLink, Visit]:
    link = mailed_tokens.read_token(
        uow, Purpose.OPEN_PREFERENCES, secret, invalid=PREFERENCES_LINK_INVALID
    )
    if link.used_at is not None:
        raise PREFERENCES_LINK_USED()
    visit = _find_visit(uow, link)
    if visit is None:
        raise PREFERENCES_LINK_INVALID()
    return link, visit


def begin_visit(uow: UnitOfWork, secret: str) -> str:
    """Start a visit, mark the mailed link as used, and return the secret of the visit."""
    link, _ = _read_unused_link(uow, secret)
    mailed_tokens.use_token(uow, link, used=PREFERENCES_LINK_USED)
    return mailed_tokens.create_token(
        uow,
        Purpose.VISIT_PREFERENCES,
        person_id=link.user_id,
        list_id=link.list_id,
        email=link.email,
    )


def read_visit(uow: UnitOfWork, secret: str | None) -> Visit:
    visit = _find_visit(uow, _read_visit_link(uow, secret))
    if visit is None:
        raise VISIT_OVER()
    return visit


def end_visit(uow: UnitOfWork, secret: str | None) -> None:
    with suppress(DomainError):
        _read_visit_link(uow, secret).used_at = func.now()


def _find_visit(uow: UnitOfWork, link: MailedLink) -> Visit | None:
    """Return ``None`` if the account is missing or its address has changed."""
    assert link.user_id is not None
    assert link.list_id is not None
    person = accounts.find_user(uow, link.user_id)
    if person is None or person.email != link.email:
        return None
    return Visit(person, lists.get_list(uow, link.list_id, archived=True))


def _read_visit_link(uow: UnitOfWork, secret: str | None) -> MailedLink:
    if not secret:
        raise VISIT_OVER()
    link = mailed_tokens.read_token(uow, Purpose.VISIT_PREFERENCES, secret, invalid=VISIT_OVER)
    if link.used_at is not None:
        raise VISIT_OVER()
    return link
