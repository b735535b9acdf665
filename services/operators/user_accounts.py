"""Finds users for operators, and describes the users' accounts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select

from core import ids
from core.ids import AccountId, PersonId
from models import ListReport, Mailing, MailingList, User, UserSession, active_count
from services.access import api_keys, sessions
from services.accounts import accounts
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

MAILING_DAYS = 30
_MAX_ID_DIGITS = len(str(ids.MAX_ID))


@dataclass(frozen=True)
class UserAccount:
    """A user's account, with the slugs of the mailing lists that aren't archived."""

    user: User
    has_password: bool
    has_second_factor: bool
    lists: list[str]
    live_keys: int


@dataclass(frozen=True)
class OwnerFigures:
    """The active members of a user's open lists, the reports of all lists, and the last visit.

    ``last_visit_at`` is ``None`` if the user has no stored session.
    """

    members: int
    reports: int
    last_visit_at: datetime | None


@dataclass(frozen=True)
class ListFigures:
    """A list's active members, its reports, and the outcomes of its mailings.

    ``bounced`` and ``complained`` count only mailings from the last ``MAILING_DAYS`` days.
    """

    slug: str
    title: str
    members: int
    reports: int
    bounced: int
    complained: int


def read_owner_figures(uow: UnitOfWork, user_ids: Collection[int]) -> Mapping[int, OwnerFigures]:
    members = select(func.coalesce(func.sum(active_count(MailingList.id)), 0)).where(
        MailingList.user_id == User.id, MailingList.archived_at.is_(None)
    )
    reports = (
        select(func.count(ListReport.id))
        .join(MailingList, MailingList.id == ListReport.list_id)
        .where(MailingList.user_id == User.id)
    )
    last_visit = select(func.max(UserSession.last_used_at)).where(UserSession.user_id == User.id)
    figures = (query.scalar_subquery() for query in (members, reports, last_visit))
    rows = uow.session.execute(select(User.id, *figures).where(User.id.in_(user_ids)))
    return {user_id: OwnerFigures(*row) for user_id, *row in rows}


def read_list_figures(uow: UnitOfWork, account_id: AccountId, limit: int) -> Sequence[ListFigures]:
    """Return the figures of a user's open lists, lists with the most reports first."""
    reports = select(func.count(ListReport.id)).where(ListReport.list_id == MailingList.id)
    is_recent = Mailing.created_at >= func.now() - timedelta(days=MAILING_DAYS)
    bounced, complained = (
        select(func.coalesce(func.sum(counter), 0)).where(
            Mailing.list_id == MailingList.id, is_recent
        )
        for counter in (Mailing.hard_bounced + Mailing.soft_bounced, Mailing.complained)
    )
    figures = [query.scalar_subquery() for query in (reports, bounced, complained)]
    query = select(
        MailingList.slug, MailingList.title, active_count(MailingList.id), *figures
    ).where(MailingList.user_id == account_id, MailingList.archived_at.is_(None))
    order = (figures[0].desc(), MailingList.created_at.desc(), MailingList.id.desc())
    rows = uow.session.execute(query.order_by(*order).limit(limit))
    return [ListFigures(*row) for row in rows]


def find_user(uow: UnitOfWork, name: str) -> User:
    if not (name.isascii() and name.isdigit()):
        return accounts.get_user_by_email(uow, name)
    # Replace a number that is too large with 0, because no user has the id 0.
    person_id = min(int(name), ids.MAX_ID) if len(name) <= _MAX_ID_DIGITS else 0
    return accounts.get_user(uow, PersonId(person_id))


def read_account(uow: UnitOfWork, user: User) -> UserAccount:
    return UserAccount(
        user,
        has_password=user.password_hash is not None,
        has_second_factor=sessions.has_second_factor(uow, user.id),
        lists=[mailing_list.slug for mailing_list in lists.list_choices(uow, user.account_id)],
        live_keys=len(api_keys.list_active_keys(uow, user.account_id)),
    )
