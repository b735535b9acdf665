"""Starts, changes and stops the watches of segments, and reads the recorded changes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, delete, func, select, text, update

from core.errors.mailing import SEGMENT_TIME_ZONE, SEGMENT_TOO_MANY_WATCHED
from core.ids import AccountId, PersonId, parse_id_cursor
from models import (
    MailingList,
    Segment,
    SegmentChange,
    SegmentMember,
    SegmentWatch,
    Subscription,
    User,
)
from services import paging
from services.paging import PageOfRows, PageRequest
from services.subscriptions import tags
from services.subscriptions.watches.segment_days import list_time_zones
from storage.unit_of_work import UnitOfWork

MAX_WATCHED_SEGMENTS = 20
DEFAULT_TIME_ZONE = "UTC"
# Lock the account's watches, so that concurrent requests together can't exceed the maximum number.
_LOCK_WATCHES = text(
    "SELECT pg_advisory_xact_lock(hashtext('segment_watches'), hashint8(:user_id))"
)
# A person's subscriptions say in which watched segments the person can be recorded.
_OF_PERSON = """
FROM segment_watches AS w JOIN subscriptions AS m ON m.list_id = w.list_id
WHERE m.user_id = :user_id
"""
_LOCK_WATCHES_OF_PERSON = text(f"SELECT w.id {_OF_PERSON} ORDER BY w.id FOR UPDATE OF w")


class ListedChange(NamedTuple):
    """An entry or exit with the member's current address and name."""

    change: SegmentChange
    email: str | None
    name: str | None


def change_watch(
    uow: UnitOfWork, mailing_list: MailingList, segment: Segment, values: Mapping[str, Any] | None
) -> None:
    """Watch a segment or change its watch. ``None`` stops the watch.

    Maintenance deletes the recorded members of a stopped watch in the background.
    """
    if values is None:
        uow.session.execute(delete(SegmentWatch).where(SegmentWatch.segment_id == segment.id))
        return
    if values.get("time_zone", DEFAULT_TIME_ZONE) not in list_time_zones():
        raise SEGMENT_TIME_ZONE()
    watch = find_watch(uow, segment.id, lock=True)
    if watch is None:
        _require_room(uow, mailing_list.user_id)
        settings = {"time_zone": DEFAULT_TIME_ZONE, "hour": 0, "imports": False, **values}
        uow.session.add(SegmentWatch(segment_id=segment.id, list_id=mailing_list.id, **settings))
    else:
        for name, value in values.items():
            setattr(watch, name, value)
        watch.due_at = func.now()
    uow.session.flush()


def find_watch(uow: UnitOfWork, segment_id: int, *, lock: bool = False) -> SegmentWatch | None:
    query = select(SegmentWatch).where(SegmentWatch.segment_id == segment_id)
    query = query.execution_options(populate_existing=True)
    return uow.session.scalar(query.with_for_update() if lock else query)


def find_watches(uow: UnitOfWork, segment_ids: Collection[int]) -> dict[int, SegmentWatch]:
    """Map the ids of watched segments to their watches."""
    query = select(SegmentWatch).where(SegmentWatch.segment_id.in_(segment_ids))
    return {watch.segment_id: watch for watch in uow.session.scalars(query)}


def list_watched_users_of_tag(uow: UnitOfWork, list_id: int, tag_id: int) -> Sequence[Segment]:
    """Return the watched segments whose filters use a tag."""
    query = (
        select(Segment)
        .join(SegmentWatch, SegmentWatch.segment_id == Segment.id)
        .where(Segment.list_id == list_id, text(tags.IS_IN_FILTER))
        .order_by(Segment.folded)
    )
    return uow.session.scalars(query, {"tag_id": tag_id}).all()


def list_changes(
    uow: UnitOfWork, mailing_list: MailingList, segment_id: int, page: PageRequest
) -> PageOfRows[ListedChange]:
    """Return changes, oldest first. A segment that isn't watched has none."""
    change = SegmentChange
    query = (
        _select_changes(mailing_list.id)
        .join(SegmentWatch, SegmentWatch.id == change.watch_id)
        .where(SegmentWatch.segment_id == segment_id)
        .order_by(change.id)
        .limit(page.limit + 1)
    )
    if page.cursor is None:
        query = query.offset(page.offset)
    else:
        query = query.where(change.id > parse_id_cursor(page.cursor))
    return _read_changes(uow, query, page)


def list_newest_changes(
    uow: UnitOfWork, watch: SegmentWatch, page: PageRequest
) -> PageOfRows[ListedChange]:
    change = SegmentChange
    before = None if page.cursor is None else parse_id_cursor(page.cursor)
    query = paging.order_newest_first(
        _select_changes(watch.list_id),
        change.watch_id,
        watch.id,
        change.id,
        before=before,
        is_read_backwards=True,
    )
    return _read_changes(uow, query.limit(page.limit + 1), page)


def _select_changes(list_id: int) -> Select[SegmentChange, str | None, str | None]:
    return (
        select(SegmentChange, Subscription.email, Subscription.name)
        .outerjoin(User, (User.id == SegmentChange.user_id) & User.erased_at.is_(None))
        .outerjoin(
            Subscription, (Subscription.user_id == User.id) & (Subscription.list_id == list_id)
        )
    )


def _read_changes(
    uow: UnitOfWork, query: Select[SegmentChange, str | None, str | None], page: PageRequest
) -> PageOfRows[ListedChange]:
    rows = [ListedChange(*row) for row in uow.session.execute(query)]
    return paging.cut_page(rows, page.limit, lambda row: str(row.change.id))


def silence_watches(uow: UnitOfWork) -> None:
    """Make all next comparisons silent, because a restored database doesn't know sent events."""
    uow.session.execute(update(SegmentWatch).values(is_silent=True, progress=None))


def delete_person(uow: UnitOfWork, person_id: PersonId) -> int:
    """Delete a person's records, and return their number.

    The watches are locked first, because a comparison also locks a watch before its records.
    """
    watch_ids = uow.session.scalars(_LOCK_WATCHES_OF_PERSON, {"user_id": person_id}).all()
    subscription_ids = select(Subscription.id).where(Subscription.user_id == person_id)
    statement = delete(SegmentMember).where(
        SegmentMember.watch_id.in_(watch_ids), SegmentMember.subscription_id.in_(subscription_ids)
    )
    rows = uow.session.execute(
        statement.returning(SegmentMember.watch_id, SegmentMember.is_in)
    ).all()
    count_deleted(uow, rows)
    return len(rows)


def count_deleted(uow: UnitOfWork, rows: Collection[Row[int, bool]]) -> None:
    """Subtract deleted records from the numbers of their watches."""
    for watch_id in sorted({watch_id for watch_id, _ in rows}):
        was_in = [is_in for each_id, is_in in rows if each_id == watch_id]
        statement = update(SegmentWatch).where(SegmentWatch.id == watch_id)
        uow.session.execute(
            statement.values(
                recorded=SegmentWatch.recorded - len(was_in),
                members=SegmentWatch.members - sum(was_in),
            )
        )


def _require_room(uow: UnitOfWork, account_id: AccountId) -> None:
    uow.session.execute(_LOCK_WATCHES, {"user_id": account_id})
    query = (
        select(func.count(SegmentWatch.id))
        .join(MailingList, MailingList.id == SegmentWatch.list_id)
        .where(MailingList.user_id == account_id)
    )
    if (uow.session.scalar(query) or 0) >= MAX_WATCHED_SEGMENTS:
        raise SEGMENT_TOO_MANY_WATCHED(most=MAX_WATCHED_SEGMENTS)
