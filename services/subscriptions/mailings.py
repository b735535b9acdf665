"""Reads the mailings of lists, with the numbers of bounces and other reported events.

A mailing is a roster, or all deliveries with one label on one day. A program may export several
rosters for one issue, for example every 15 minutes. Mailings of a list with the same name on the
same day in UTC count as one issue.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from fractions import Fraction

from sqlalchemy import func, select

from core.errors.mailing import MAILING_NOT_FOUND
from core.ids import AccountId
from models import Mailing, MailingList, SubscriptionEvent
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
# The figures of a mailing that show what members did. They stay hidden if fewer members are
# measured, because the figures could show what one of them did.
ENGAGEMENT_FIGURES = ("opened", "machine_opened", "clicked")
MIN_MEASURED = 20
# A filter can have at most 100 values, and the people of an issue are found by one filter.
_MAX_MAILINGS_PER_ISSUE = 100
# How many earlier issues an issue is compared with, and in how many mailings they are searched.
_MAX_COMPARED_ISSUES = 5
_MAX_SEARCHED_MAILINGS = 500


class Outcome(StrEnum):
    DELIVERED = "delivered"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    LEFT = "left"


@dataclass(frozen=True)
class Issue:
    """The mailings of one issue, and the numbers of their recipients by outcome.

    ``recipients``: the size of the largest roster, because each roster of an issue usually contains
    all members. If more mails were delivered or bounced, their number.
    """

    mailings: Sequence[Mailing]
    counts: Mapping[Outcome, int]

    @property
    def recipients(self) -> int:
        reported = self.counts[Outcome.DELIVERED] + self.counts[Outcome.BOUNCED]
        return max(reported, *(each.rows for each in self.mailings))

    @property
    def has_reports(self) -> bool:
        return any(_has_reports(each) for each in self.mailings)

    def compute_share(self, outcome: Outcome) -> Fraction:
        return Fraction(self.counts[outcome], self.recipients or 1)


def list_mailings(uow: UnitOfWork, list_id: int, page: PageRequest) -> PageOfRows[Mailing]:
    query = paging.select_owner_page(select(Mailing), Mailing.list_id, list_id, page)
    return paging.read_page(uow, query, page)


def find_newest_issue(uow: UnitOfWork, account_id: AccountId) -> Issue | None:
    """Return the newest issue of the user's lists, or ``None`` without mailings."""
    newest_of_list = select(func.max(Mailing.id)).where(Mailing.list_id == MailingList.id)
    query = select(func.max(newest_of_list.scalar_subquery())).select_from(MailingList)
    query = query.where(MailingList.user_id == account_id, MailingList.archived_at.is_(None))
    mailing = uow.session.scalar(select(Mailing).where(Mailing.id == query.scalar_subquery()))
    return None if mailing is None else read_issue(uow, mailing)


def get_mailing(uow: UnitOfWork, list_id: int, mailing_id: int) -> Mailing:
    query = select(Mailing).where(Mailing.id == mailing_id, Mailing.list_id == list_id)
    mailing = uow.session.scalar(query)
    if mailing is None:
        raise MAILING_NOT_FOUND()
    return mailing


def list_names(uow: UnitOfWork, list_id: int, mailing_ids: Collection[int]) -> dict[int, str]:
    """Map the ids of the list's mailings to their names. Ignore the ids of other mails."""
    query = select(Mailing).where(Mailing.id.in_(mailing_ids), Mailing.list_id == list_id)
    return {each.id: get_name(each) for each in uow.session.scalars(query)}


def get_name(mailing: Mailing) -> str:
    return mailing.label or f"Mailing {mailing.id}"


def describe_mailings(uow: UnitOfWork, rows: Sequence[Mailing]) -> list[Issue]:
    """Return each mailing on its own, as if it were a whole issue."""
    return _build_issues(uow, [[row] for row in rows])


def read_issue(uow: UnitOfWork, mailing: Mailing) -> Issue:
    """Return the issue of a mailing, newest mailing first."""
    rows = [mailing]
    if mailing.label is not None:
        day_begin = datetime.combine(_get_day(mailing), time(), UTC)
        query = select(Mailing).where(
            Mailing.list_id == mailing.list_id,
            Mailing.label == mailing.label,
            Mailing.created_at >= day_begin,
            Mailing.created_at < day_begin + timedelta(days=1),
        )
        query = query.order_by(Mailing.id.desc()).limit(_MAX_MAILINGS_PER_ISSUE)
        rows = [*uow.session.scalars(query)]
    [issue] = _build_issues(uow, [rows])
    return issue


def find_earlier_issues(uow: UnitOfWork, issue: Issue) -> list[Issue]:
    """Return the list's last issues before this one about which senders have reported."""
    first = issue.mailings[-1]
    query = select(Mailing).where(Mailing.list_id == first.list_id, Mailing.id < first.id)
    query = query.order_by(Mailing.id.desc()).limit(_MAX_SEARCHED_MAILINGS)
    rows_by_issue: dict[tuple[str | int, date], list[Mailing]] = {}
    for row in uow.session.scalars(query):
        key = _get_issue_key(row)
        if key == _get_issue_key(first):
            continue
        rows_by_issue.setdefault(key, []).append(row)
    reported = [rows for rows in rows_by_issue.values() if any(map(_has_reports, rows))]
    return _build_issues(uow, reported[:_MAX_COMPARED_ISSUES])


def _build_issues(uow: UnitOfWork, mailings: Sequence[Sequence[Mailing]]) -> list[Issue]:
    left_counts = count_left(uow, [row.id for rows in mailings for row in rows])
    return [
        Issue(
            rows,
            {
                Outcome.DELIVERED: sum(row.delivered for row in rows),
                Outcome.BOUNCED: sum(row.hard_bounced + row.soft_bounced for row in rows),
                Outcome.COMPLAINED: sum(row.complained for row in rows),
                Outcome.LEFT: sum(left_counts.get(row.id, 0) for row in rows),
            },
        )
        for rows in mailings
    ]


def _get_issue_key(mailing: Mailing) -> tuple[str | int, date]:
    return mailing.label or mailing.id, _get_day(mailing)


def _get_day(mailing: Mailing) -> date:
    return mailing.created_at.astimezone(UTC).date()


def _has_reports(mailing: Mailing) -> bool:
    bounced = mailing.hard_bounced + mailing.soft_bounced + mailing.blocked
    return mailing.delivered + bounced + mailing.complained + mailing.unsubscribed > 0


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


def is_measured(mailing: Mailing) -> bool:
    """Return whether the mailing's figures of opens and clicks may be shown."""
    return mailing.measured is not None and mailing.measured >= MIN_MEASURED


def has_many_bounces(rows: int, hard_bounced: int) -> bool:
    return rows >= _MIN_ALARM_ROWS and hard_bounced >= rows * _MAX_BOUNCE_SHARE


def has_many_complaints(rows: int, complained: int) -> bool:
    return rows >= _MIN_ALARM_ROWS and complained >= rows * _MAX_COMPLAINT_SHARE
