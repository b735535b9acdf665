"""How many members a filter means: exactly where that can be told soon, and about elsewhere."""

from dataclasses import dataclass
from datetime import timedelta

import psycopg2.errors
from sqlalchemy import BigInteger, bindparam, column, func, select, text
from sqlalchemy.exc import OperationalError

from models import MailingList, Subscription, SubscriptionStatus
from services.mailing import subscriber_counts
from services.mailing.filters.member_filter import MemberFilter
from storage.resources import Resources

# A million members take about half of it where they are in memory.
MAX_EXACT_TIME = timedelta(seconds=2)
# So many members in so many places of the list: a share of them is right to about one in a hundred,
# if the members who are meant are spread over the list.
_PLACES, _MEMBERS_A_PLACE = 200, 50


@dataclass(frozen=True)
class MemberCount:
    """
    Attributes:
        count: ``None`` where it would take too long, and the filter means others than the active.
        is_exact: whether all members were looked at; otherwise it stands for a sample.
    """

    count: int | None
    is_exact: bool


def count(
    resources: Resources,
    mailing_list: MailingList,
    wanted: MemberFilter,
    *,
    within: timedelta = MAX_EXACT_TIME,
) -> MemberCount:
    """Takes that time and a little at most, however many members the list has.

    Args:
        within: an exact number that takes longer is not waited for.
    """
    if wanted.is_all_active:
        with resources.unit_of_work() as uow:
            known = subscriber_counts.count_subscribers(uow, [mailing_list.id])
            return MemberCount(known[mailing_list.id], is_exact=True)
    s, bound = Subscription, wanted.indexed()
    query = select(func.count()).where(s.list_id == mailing_list.id, wanted.condition())
    try:
        with resources.unit_of_work() as uow:
            milliseconds = within // timedelta(milliseconds=1)
            uow.session.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
            found = uow.session.scalar(query if bound is None else query.where(bound))
            return MemberCount(found, is_exact=True)
    except OperationalError as error:
        if not isinstance(error.orig, psycopg2.errors.QueryCanceled):
            raise
    if wanted.statuses() != (SubscriptionStatus.ACTIVE,):
        return MemberCount(None, is_exact=False)
    return MemberCount(_estimate(resources, mailing_list.id, wanted), is_exact=False)


def _estimate(resources: Resources, list_id: int, wanted: MemberFilter) -> int:
    """From a sample of the active members, and from how many there are."""
    sample = _SAMPLE.bindparams(list_id=list_id).subquery()
    meant = func.count().filter(wanted.condition())
    query = select(meant, func.count()).join(sample, sample.c.id == Subscription.id)
    with resources.unit_of_work() as uow:
        meant_ones, looked_at = uow.session.execute(query.select_from(Subscription)).one()
        active = subscriber_counts.count_subscribers(uow, [list_id])[list_id]
    return round(active * meant_ones / max(looked_at, 1))


_OF_LIST = (
    "SELECT id FROM subscriptions"
    " WHERE list_id = ANY (ARRAY[CAST(:list_id AS bigint)]) AND status = 'active'"
)
_SAMPLE = (
    text(
        f"""
        WITH ends AS (
            SELECT ({_OF_LIST} ORDER BY list_id, id LIMIT 1) AS first,
                ({_OF_LIST} ORDER BY list_id DESC, id DESC LIMIT 1) AS last
        )
        SELECT found.id FROM ends CROSS JOIN generate_series(1, :places) AS place
        CROSS JOIN LATERAL (
            {_OF_LIST} AND id >= first + (last - first) * (place - 1) / :places
            ORDER BY list_id, id LIMIT :each
        ) AS found
        """  # noqa: S608
    )
    .bindparams(bindparam("places", _PLACES), bindparam("each", _MEMBERS_A_PLACE))
    .columns(column("id", BigInteger))
)
