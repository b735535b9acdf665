"""Counts the members who match a filter, within a time limit."""

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

# The default time limit for counting the members who match a filter. Counting a million members
# takes about one second if the members' rows are in memory.
MAX_EXACT_TIME = timedelta(seconds=2)
# The number of members that are checked in one batch. Checking one batch takes 5 to 10 ms.
_MAX_BATCH_MEMBERS = 10_000


@dataclass(frozen=True)
class MemberCount:
    """The number of members, or a lower bound if counting took too long."""

    count: int
    is_exact: bool


def count_members(
    resources: Resources,
    mailing_list: MailingList,
    member_filter: MemberFilter,
    *,
    within: timedelta = MAX_EXACT_TIME,
) -> MemberCount:
    if member_filter.is_all_active:
        with resources.unit_of_work() as uow:
            counts = subscriber_counts.count_subscribers(uow, [mailing_list.id])
            return MemberCount(counts[mailing_list.id], is_exact=True)
    begun_at = monotonic()
    seconds = within.total_seconds()
    indexed_condition = member_filter.build_indexed_condition()
    if indexed_condition is not None:
        query = select(func.count()).where(
            Subscription.list_id == mailing_list.id,
            member_filter.build_condition(),
            indexed_condition,
        )
        # Counting with an index gets half of the available time, because the index is slow if many
        # members match. The exact count may use half of the available time. The rest of the time is
        # reserved for counting in batches, which returns at least a lower bound.
        if row := _read_in_time(resources, query, begun_at + seconds / 2):
            return MemberCount(row[0], is_exact=True)
    statuses = member_filter.list_statuses()
    if not statuses:
        return MemberCount(0, is_exact=True)
    members = searching.build_newest_query(statuses, _MAX_BATCH_MEMBERS, by_cursor=True)
    selected = func.count().filter(member_filter.build_condition(members))
    batch = select(selected, func.count(), func.min(members.c.id)).select_from(members)
    total = 0
    values = {"list_id": mailing_list.id, "before": MAX_ID + 1}
    while row := _read_in_time(resources, batch, begun_at + seconds, **values):
        selected_count, read_count, values["before"] = row
        total += selected_count
        if read_count < _MAX_BATCH_MEMBERS:
            return MemberCount(total, is_exact=True)
    return MemberCount(total, is_exact=False)


def _read_in_time(
    resources: Resources, query: Select[*tuple[Any, ...]], ends_at: float, **values: int
) -> Row[*tuple[Any, ...]] | None:
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
