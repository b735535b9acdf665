"""Stores reports about abusive lists.

A report comes from a subscriber who never signed up for the list, or from a visitor of the list's
public page.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, ScalarSelect, func, literal, select, text
from sqlalchemy.dialects.postgresql import insert

from core.ids import AccountId
from models import ListReport, MailingList, OptOutKind, User
from services.subscriptions.members import locks, unsubscribe
from services.subscriptions.members.changes import Actor
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_PAGE_REPORTS_OF_NETWORK_A_DAY = 20
MAX_PAGE_REPORTS_OF_LIST = 1_000
# The subquery finds the most reported lists, so that Postgres reads the owners of only a few lists.
_REPORTED_LISTS = text("""
WITH worst AS (
    SELECT list_id, count(*) AS reports, count(network_digest) AS by_strangers,
        count(*) FILTER (WHERE created_at > now() - interval '7 days') AS lately,
        max(created_at) AS last_at
    FROM list_reports GROUP BY list_id ORDER BY lately DESC, reports DESC, list_id LIMIT :most
)
SELECT l.id, l.slug, l.title, u.id, u.email, reports, by_strangers, lately, last_at
FROM worst JOIN lists AS l ON l.id = list_id JOIN users AS u ON u.id = l.user_id
ORDER BY lately DESC, reports DESC, l.id
""")


@dataclass(frozen=True)
class ReportedList:
    list_id: int
    slug: str
    title: str
    owner_id: AccountId
    owner: str
    reports: int
    by_strangers: int
    reports_in_7_days: int
    last_at: datetime


def report_list(
    resources: Resources, mailing_list: MailingList, person: User, actor: Actor
) -> None:
    """Unsubscribe a person who never signed up.

    A second transaction stores the person's first report.
    """
    unsubscribe.opt_out(resources, mailing_list, person, OptOutKind.LIST, actor)
    with resources.unit_of_work() as uow:
        if locks.lock_person_shared(uow, person.id):
            statement = insert(ListReport).values(list_id=mailing_list.id, user_id=person.id)
            uow.session.execute(statement.on_conflict_do_nothing())


def report_page(uow: UnitOfWork, mailing_list: MailingList, network_digest: bytes) -> None:
    """Store a report, at most one per list and IP network, and up to a maximum number."""
    network_reports = _count_reports(
        ListReport.network_digest == network_digest,
        ListReport.created_at > func.now() - timedelta(days=1),
    )
    list_reports = _count_reports(
        ListReport.list_id == mailing_list.id, ListReport.network_digest.is_not(None)
    )
    row = select(literal(mailing_list.id), literal(network_digest)).where(
        network_reports < MAX_PAGE_REPORTS_OF_NETWORK_A_DAY,
        list_reports < MAX_PAGE_REPORTS_OF_LIST,
    )
    statement = insert(ListReport).from_select(["list_id", "network_digest"], row)
    uow.session.execute(statement.on_conflict_do_nothing())


def _count_reports(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    return select(func.count()).select_from(ListReport).where(*conditions).scalar_subquery()


def is_reported(uow: UnitOfWork, mailing_list: MailingList, person: User) -> bool:
    query = select(ListReport.id).where(
        ListReport.list_id == mailing_list.id, ListReport.user_id == person.id
    )
    return uow.session.scalar(query) is not None


def list_reported(uow: UnitOfWork, *, limit: int) -> list[ReportedList]:
    """Put lists with the most reports in the last seven days first."""
    return [ReportedList(*row) for row in uow.session.execute(_REPORTED_LISTS, {"most": limit})]
