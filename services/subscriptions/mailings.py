"""Reads the mailings of lists, with the numbers of bounces and other reported events."""

from collections.abc import Collection
from fractions import Fraction

from sqlalchemy import func, select

from core.errors.mailing import MAILING_NOT_FOUND
from models import Mailing, SubscriptionEvent
from services import paging
from services.paging import PageOfRows, PageRequest
from services.subscriptions.members.departures import LEFT_BY_MAIL_ACTIONS
from storage.unit_of_work import UnitOfWork

# A list's owner is notified if at least 5 % of a mailing's recipients caused hard bounces, or if at
# least 0.3 % complained. The owner isn't notified about mailings to fewer than 500 recipients.
# Google and Yahoo require a complaint rate below 0.3 %. ``_MAX_BOUNCE_SHARE`` and
# ``_MAX_COMPLAINT_SHARE`` have the type ``Fraction``, because products of floats aren't exact.
_MIN_ALARM_ROWS = 500
_MAX_BOUNCE_SHARE = Fraction(5, 100)
_MAX_COMPLAINT_SHARE = Fraction(3, 1000)


def list_mailings(uow: UnitOfWork, list_id: int, page: PageRequest) -> PageOfRows[Mailing]:
    query = paging.select_owner_page(select(Mailing), Mailing.list_id, list_id, page)
    return paging.read_page(uow, query, page)


def get_mailing(uow: UnitOfWork, list_id: int, mailing_id: int) -> Mailing:
    query = select(Mailing).where(Mailing.id == mailing_id, Mailing.list_id == list_id)
    mailing = uow.session.scalar(query)
    if mailing is None:
        raise MAILING_NOT_FOUND()
    return mailing


def list_names(uow: UnitOfWork, list_id: int, mailing_ids: Collection[int]) -> dict[int, str]:
    """Map the ids of the list's mailings to their names. Ignore the ids of other mails."""
    query = select(Mailing).where(Mailing.id.in_(mailing_ids), Mailing.list_id == list_id)
    return {each.id: each.label or f"Mailing {each.id}" for each in uow.session.scalars(query)}


def count_left(uow: UnitOfWork, mailing_ids: Collection[int]) -> dict[int, int]:
    """Map the ids to the numbers of members who left or turned mail off because of the mailing.

    The result omits mailings without such members.
    """
    event = SubscriptionEvent
    query = (
        select(event.mailing_id, func.count(event.user_id.distinct()))
        .where(event.mailing_id.in_(mailing_ids), event.action.in_(LEFT_BY_MAIL_ACTIONS))
        .group_by(event.mailing_id)
    )
    return {mailing_id: count for mailing_id, count in uow.session.execute(query) if mailing_id}


def has_many_bounces(rows: int, hard_bounced: int) -> bool:
    return rows >= _MIN_ALARM_ROWS and hard_bounced >= rows * _MAX_BOUNCE_SHARE


def has_many_complaints(rows: int, complained: int) -> bool:
    return rows >= _MIN_ALARM_ROWS and complained >= rows * _MAX_COMPLAINT_SHARE
