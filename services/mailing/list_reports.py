"""Reports of lists by people who did not ask for them. The operator reads them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from models import ListReport, MailingList, OptOutKind, User
from services.mailing.subscriptions import locks, unsubscribe
from services.mailing.subscriptions.changes import Actor
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_LATELY = timedelta(days=7)


def report(resources: Resources, mailing_list: MailingList, person: User, actor: Actor) -> None:
    """Record that the person did not ask for the list, and let them leave it for good.

    Reporting again changes nothing. The person leaves first: should this be cut off between the
    two, they get no more mail, and can still report.
    """
    unsubscribe.opt_out(resources, mailing_list, person, OptOutKind.LIST, actor)
    with resources.unit_of_work() as uow:
        if locks.share_person(uow, person.id):
            statement = insert(ListReport).values(list_id=mailing_list.id, user_id=person.id)
            uow.session.execute(statement.on_conflict_do_nothing())


def is_reported(uow: UnitOfWork, mailing_list: MailingList, person: User) -> bool:
    """Whether this person has reported the list."""
    query = select(ListReport.id).where(
        ListReport.list_id == mailing_list.id, ListReport.user_id == person.id
    )
    return uow.session.scalar(query) is not None


@dataclass(frozen=True)
class ReportedList:
    list_id: int
    slug: str
    title: str
    owner_id: int
    owner: str
    reports: int
    reports_in_7_days: int
    last_at: datetime


def reported_lists(uow: UnitOfWork, *, limit: int) -> list[ReportedList]:
    """Lists with reports, those with the most in the last week first."""
    total = func.count(ListReport.id)
    lately = total.filter(ListReport.created_at > func.now() - _LATELY)
    # The lists are chosen first, so that no other lists and owners are read.
    worst = (
        select(
            ListReport.list_id,
            total.label("total"),
            lately.label("lately"),
            func.max(ListReport.created_at).label("last_at"),
        )
        .group_by(ListReport.list_id)
        .order_by(lately.desc(), total.desc(), ListReport.list_id)
        .limit(limit)
        .subquery()
    )
    found = worst.c
    query = (
        select(
            MailingList.id,
            MailingList.slug,
            MailingList.title,
            User.id,
            User.email,
            found.total,
            found.lately,
            found.last_at,
        )
        .join(worst, MailingList.id == found.list_id)
        .join(User, User.id == MailingList.user_id)
        .order_by(found.lately.desc(), found.total.desc(), MailingList.id)
    )
    return [ReportedList(*row) for row in uow.session.execute(query)]
