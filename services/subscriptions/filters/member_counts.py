"""Counts the members whom a filter selects, within a time limit."""

from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg2.errors
from sqlalchemy import Row, Select, func, select, text
from sqlalchemy.exc import OperationalError

from core.ids import MAX_ID
from models import MailingList, Subscription
from services.subscriptions import subscriber_counts
from services.subscriptions.filters import searching
from services.subscriptions.filters.member_filter import MemberFilter
from storage.resources import Resources

# A million members take about half of it where they are in memory.
MAX_EXACT_TIME = timedelta(seconds=2)
# 5 to 10 ms of work.
MAX_MEMBERS_AT_ONCE = 10_000


@dataclass(frozen=True)
class MemberCount:
    """How many members are meant; at least ``count``, unless all were looked at."""

    count: int
    is_exact: bool


def count_members(
    resources: Resources,
    mailing_list: MailingList,
    wanted: MemberFilter,
    *,
    within: timedelta = MAX_EXACT_TIME,
) -> MemberCount:
    """Count by an index where one helps, and otherwise one member after the other.

    It takes no more time than ``within``, however many members the list has.
    """
    if wanted.is_all_active:
        with resources.unit_of_work() as uow:
            known = subscriber_counts.count_subscribers(uow, [mailing_list.id])
            return MemberCount(known[mailing_list.id], is_exact=True)
    begun_at, seconds = monotonic(), within.total_seconds()
    if (bound := wanted.indexed()) is not None:
        s = Subscription
        query = select(func.count()).where(s.list_id == mailing_list.id, wanted.condition(), bound)
        # An index that finds many takes as long as a look at all, which tells a part at least.
        if found := _in_time(resources, query, begun_at + seconds / 2):
            return MemberCount(found[0], is_exact=True)
    if not (statuses := wanted.statuses()):
        return MemberCount(0, is_exact=True)
    seen = searching.newest(statuses, MAX_MEMBERS_AT_ONCE, by_cursor=True)
    meant = func.count().filter(wanted.condition(seen))
    batch = select(meant, func.count(), func.min(seen.c.id)).select_from(seen)
    counted, before = 0, MAX_ID + 1
    ends_at, list_id = begun_at + seconds, mailing_list.id
    while found := _in_time(resources, batch, ends_at, list_id=list_id, before=before):
        counted += found[0]
        if found[1] < MAX_MEMBERS_AT_ONCE:
            return MemberCount(counted, is_exact=True)
        before = found[2]
    return MemberCount(counted, is_exact=False)


def _in_time(
    resources: Resources, query: Select[*tuple[Any, ...]], ends_at: float, **values: int
) -> Row[*tuple[Any, ...]] | None:
    """The one row of the query; ``None`` if the time is over before it is found."""
    milliseconds = int((ends_at - monotonic()) * 1000)
    if milliseconds < 1:
        return None
    try:
        with resources.unit_of_work() as uow:
            uow.session.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
            return uow.session.execute(query, values).one()
    except OperationalError as error:
        if not isinstance(error.orig, psycopg2.errors.QueryCanceled):
            raise
    return None
