"""Compares watched segments with their recorded members.

A comparison first only reads. It writes the differences afterwards, in short transactions. Each of
them locks the watch and checks ``progress``, so that two workers never write the same difference.
A comparison with many differences stores in ``progress`` how far it has come, so that a worker can
resume it after a crash. A change of the filter clears ``progress``, which ends the comparison.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import psycopg2.errors
from sqlalchemy import func, select, text
from sqlalchemy.exc import OperationalError

from core.errors import DomainError
from core.errors.mailing import SEGMENT_TAG_DELETED
from core.ids import MAX_ID
from core.logging import get_logger
from core.settings.notations import PlanQuota
from models import MailingList, PauseReason, Segment, SegmentWatch
from services.access import quotas
from services.feed.catalogue import FeedEventType, announce_event
from services.jobs.maintenance import register_maintenance
from services.subscriptions import subscriber_counts
from services.subscriptions.filters import member_filter
from services.subscriptions.watches import pauses
from services.subscriptions.watches.difference import Difference, Written
from services.subscriptions.watches.segment_days import find_day_start, find_segment_day
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

T = TypeVar("T")

# A comparison with more changes causes one event instead of an event per change.
MAX_SINGLE_EVENTS = 10_000
# The pauses between comparisons leave time for the comparison itself: a change is found within 15
# minutes on short lists, and within an hour on long lists.
_SHORT_LIST_PAUSE = timedelta(minutes=12)
_LONG_LIST_PAUSE = timedelta(minutes=50)
MAX_SHORT_LIST_MEMBERS = 100_000
_MAX_IMPORT_WAIT = timedelta(hours=1)
_MAX_MISSED_DAYS = 3
# The number of bytes that a recorded member counts, as in the function `count_recorded_members`.
RECORD_BYTES = 100
MAX_WRITE_ROWS = 10_000
# Reading locks nothing, so that its batches can be larger.
MAX_READ_ROWS = 50_000
# The first of this number of batches also reads its members without the filter.
_BATCHES_PER_READING = 8
_MIN_BATCH_ROWS = 100
# A batch with a longer statement is repeated with fewer rows. A batch has three long statements at
# most, so that no transaction lasts longer than five seconds.
_MAX_STATEMENT_MS = 1_500
MAX_CPU_SECONDS = 60.0
# The CPU time for reading one member without a filter, on a usual machine. A slow machine also
# reads slowly, so the ratio of both durations says how much CPU time a filter needs.
_READ_CPU_SECONDS = 0.3e-6
_MAX_RUN = timedelta(minutes=30)
_LIMIT_TIME = text(f"SET LOCAL statement_timeout = {_MAX_STATEMENT_MS}")
_IS_IMPORTING = text("""
SELECT EXISTS (
    SELECT FROM imports WHERE list_id = :list_id AND status = 'running' AND NOT dry_run
)
""")
# Includes an undo that has only begun.
_HAS_IMPORTS = text("""
SELECT EXISTS (
    SELECT FROM imports WHERE list_id = :list_id AND NOT dry_run AND (
        status = 'running' OR finished_at >= :seen_at OR undone_at >= :seen_at
        OR undo_job_id IS NOT NULL AND undone_at IS NULL
    )
)
""")
_LIST_DUE = text("""
SELECT w.id FROM segment_watches AS w JOIN lists AS l ON l.id = w.list_id
WHERE w.due_at <= :now AND l.archived_at IS NULL ORDER BY w.due_at
""")


class _ComparisonEnded(Exception):
    """Raised if the watch was stopped, its filter changed, or another worker compares it."""


class _ComparisonPaused(Exception):
    def __init__(self, reason: PauseReason) -> None:
        super().__init__(reason)
        self.reason = reason


def compare_due_watches(resources: Resources, now: datetime) -> int:
    """Return the number of comparisons.

    Raises the last error after all watches were tried, so that one watch doesn't delay the others.
    """
    with resources.unit_of_work() as uow:
        watch_ids = uow.session.scalars(_LIST_DUE, {"now": now}).all()
    begun_at = monotonic()
    compared = 0
    last_error: Exception | None = None
    for watch_id in watch_ids:
        passed = timedelta(seconds=monotonic() - begun_at)
        if passed > _MAX_RUN:
            break
        try:
            compared += compare_watch(resources, watch_id, now + passed)
        except Exception as error:
            log.exception("segment.comparison_failed", watch_id=watch_id)
            last_error = error
    if last_error is not None:
        raise last_error
    return compared


COMPARE_SEGMENTS = register_maintenance(
    "segments.compare",
    every=timedelta(minutes=1),
    run=compare_due_watches,
    max_run=4 * _MAX_RUN,
)


def compare_watch(resources: Resources, watch_id: int, now: datetime) -> int:
    """Compare a watch on each of its missed days and on the current day."""
    compared = 0
    while True:
        try:
            comparison = _begin_comparison(resources, watch_id, now)
            if comparison is None:
                return compared
            comparison.run()
            compared += 1
        except _ComparisonEnded:
            return compared
        except _ComparisonPaused as pause:
            with resources.unit_of_work() as uow:
                pauses.pause_watch(uow, watch_id, pause.reason, now)
            return compared


def _begin_comparison(resources: Resources, watch_id: int, now: datetime) -> "_Comparison | None":
    """Return ``None`` if the watch isn't due, or waits for an import."""
    with resources.unit_of_work() as uow:
        watch = uow.session.get(SegmentWatch, watch_id, with_for_update=True)
        if watch is None or watch.due_at > now:
            return None
        is_importing = bool(uow.session.scalar(_IS_IMPORTING, {"list_id": watch.list_id}))
        if is_importing and watch.due_at > now - _MAX_IMPORT_WAIT:
            return None
        zone = ZoneInfo(watch.time_zone)
        today = find_segment_day(now, zone, watch.hour)
        if watch.progress is None or "after" not in watch.progress:
            begun_at = uow.session.scalars(select(func.clock_timestamp())).one()
            # While an import runs, its changes before this moment may be invisible.
            seen_at = watch.imports_seen_at if is_importing else begun_at
            watch.progress = {
                "day": _choose_day(watch, today).isoformat(),
                "begun_at": begun_at.isoformat(),
                "seen_at": seen_at.isoformat(),
            }
        difference = _build_difference(uow, watch)
        members = subscriber_counts.count_subscribers(uow, [watch.list_id])[watch.list_id]
        pause = _LONG_LIST_PAUSE if members > MAX_SHORT_LIST_MEMBERS else _SHORT_LIST_PAUSE
        tomorrow = find_day_start(today + timedelta(days=1), zone, watch.hour)
        # A missed day is followed by the next day at once.
        due_at = watch.due_at if difference.day < today else min(now + pause, tomorrow)
        return _Comparison(resources, difference, watch.progress, due_at)


def _choose_day(watch: SegmentWatch, today: date) -> date:
    """Return the next day to compare. Only the last missed days are compared.

    A silent comparison skips all missed days, because only its result matters.
    """
    if watch.compared_day is None or watch.compared_day >= today:
        # After a change of the time zone, the day before may still last.
        return max(watch.compared_day or today, today)
    if watch.is_silent:
        return today
    return max(watch.compared_day + timedelta(days=1), today - timedelta(days=_MAX_MISSED_DAYS))


def _build_difference(uow: UnitOfWork, watch: SegmentWatch) -> Difference:
    """Raise ``_ComparisonPaused`` if the filter is invalid."""
    mailing_list = uow.session.get_one(MailingList, watch.list_id)
    stored_filter = uow.session.scalars(
        select(Segment.filter).where(Segment.id == watch.segment_id)
    ).one()
    assert watch.progress is not None
    day = date.fromisoformat(watch.progress["day"])
    try:
        parsed_filter = member_filter.read_stored_filter(
            uow, mailing_list, stored_filter, today=day
        )
    except DomainError as error:
        is_tag = error.code == SEGMENT_TAG_DELETED.code
        reason = PauseReason.TAG_DELETED if is_tag else PauseReason.FIELD_RETIRED
        raise _ComparisonPaused(reason) from None
    values = {"list_id": watch.list_id, "seen_at": watch.imports_seen_at}
    has_imports = not watch.imports and uow.session.scalar(_HAS_IMPORTS, values)
    return Difference(
        watch_id=watch.id,
        segment_id=watch.segment_id,
        list_id=watch.list_id,
        owner_id=mailing_list.user_id,
        day=day,
        condition=parsed_filter.build_condition(),
        statuses=parsed_filter.list_statuses(),
        is_silent=watch.is_silent,
        seen_at=watch.imports_seen_at if has_imports else None,
    )


@dataclass
class _Comparison:
    """A comparison of one watch on one day.

    Attributes:
        progress: the watch's column in the database. ``day`` and ``begun_at`` identify the
            comparison, and ``seen_at`` is the watch's next ``imports_seen_at``. While the
            comparison writes many differences, ``after`` is the last compared subscription,
            ``is_many`` says whether they cause one event, and ``entered`` and ``left`` count them.
        due_at: the time of the next comparison.
    """

    resources: Resources
    difference: Difference
    progress: dict[str, Any]
    due_at: datetime
    batch_rows: int = field(default_factory=lambda: MAX_READ_ROWS)
    members_read: int = 0
    seconds_reading: float = 0.0
    seconds_comparing: float = 0.0

    @property
    def write_rows(self) -> int:
        return min(self.batch_rows, MAX_WRITE_ROWS)

    def run(self) -> None:
        if "after" not in self.progress:
            ids, is_many = self._find_differences()
            if ids is None:
                self._store_progress(after=0, is_many=is_many, entered=0, left=0)
            else:
                while ids:
                    del ids[: self._run_batch(partial(self._write_ids, ids=ids))]
        while self.progress.get("after", MAX_ID) < MAX_ID:
            # The database's progress changes only if the batch is committed.
            self.progress = self._run_batch(self._write_range)
        self._end()

    def _find_differences(self) -> tuple[list[int] | None, bool]:
        """Return the subscription ids of all differences, or ``None`` if there are too many.

        The second result says whether too many of them would cause events.
        """
        ids: list[int] = []
        total = events = after = 0
        for number in count():
            if after == MAX_ID:
                break
            measures = number % _BATCHES_PER_READING == 0
            find = partial(self._find_in_range, after=after, measures=measures)
            after, differences = self._run_batch(find)
            total += len(differences)
            events += sum(not is_silent for _, is_silent in differences)
            # The rest doesn't matter if the comparison must write ranges in any case.
            is_decided = self.difference.is_silent and total > MAX_SINGLE_EVENTS
            if events > MAX_SINGLE_EVENTS or is_decided:
                break
            if total <= MAX_SINGLE_EVENTS:
                ids += [subscription_id for subscription_id, _ in differences]
        return (ids if total <= MAX_SINGLE_EVENTS else None), events > MAX_SINGLE_EVENTS

    def _find_in_range(
        self, uow: UnitOfWork, after: int, *, measures: bool
    ) -> tuple[int, Sequence[tuple[int, bool]]]:
        """Return the end of the range and its differences.

        ``measures``: whether to measure how fast the members are read without the filter.
        """
        upto = self.difference.find_range_end(uow, after, self.batch_rows)
        if measures:
            begun_at = monotonic()
            self.members_read += self.difference.read_members(uow, after, upto)
            self.seconds_reading += monotonic() - begun_at
        begun_at = monotonic()
        differences = self.difference.find_differences(uow, after, upto)
        self.seconds_comparing += monotonic() - begun_at
        ratio = self.seconds_comparing / max(self.seconds_reading, 1e-6)
        if ratio * self.members_read * _READ_CPU_SECONDS > MAX_CPU_SECONDS:
            raise _ComparisonPaused(PauseReason.TOO_SLOW)
        return upto, differences

    def _write_ids(self, uow: UnitOfWork, ids: Sequence[int]) -> int:
        """Write a batch, and return the number of its ids."""
        watch = self._lock_watch(uow)
        batch = ids[: self.write_rows]
        self._count(uow, watch, self.difference.write_ids(uow, batch))
        return len(batch)

    def _write_range(self, uow: UnitOfWork) -> dict[str, Any]:
        """Return the new progress."""
        watch = self._lock_watch(uow)
        after = self.progress["after"]
        upto = self.difference.find_range_end(uow, after, self.write_rows)
        has_events = not self.progress["is_many"]
        written = self.difference.write_range(uow, after, upto, has_events=has_events)
        self._count(uow, watch, written)
        watch.progress = {
            **self.progress,
            "after": upto,
            "entered": self.progress["entered"] + written.entered,
            "left": self.progress["left"] + written.left,
        }
        return watch.progress

    def _run_batch(self, run: Callable[[UnitOfWork], T]) -> T:
        """Run a batch in a transaction. If the batch takes too long, repeat it with fewer rows."""
        while True:
            try:
                with self.resources.unit_of_work() as uow:
                    uow.session.execute(_LIMIT_TIME)
                    return run(uow)
            except OperationalError as error:
                is_slow = isinstance(error.orig, psycopg2.errors.QueryCanceled)
                if not is_slow or self.batch_rows <= _MIN_BATCH_ROWS:
                    raise
                self.batch_rows //= 4

    def _store_progress(self, **values: int) -> None:
        with self.resources.unit_of_work() as uow:
            watch = self._lock_watch(uow)
            watch.progress = {**self.progress, **values}
        self.progress = watch.progress

    def _lock_watch(self, uow: UnitOfWork) -> SegmentWatch:
        watch = uow.session.get(SegmentWatch, self.difference.watch_id, with_for_update=True)
        if watch is None or watch.progress != self.progress:
            raise _ComparisonEnded
        return watch

    def _count(self, uow: UnitOfWork, watch: SegmentWatch, written: Written) -> None:
        if written.recorded > 0:
            # Lock the quota before the change of ``recorded``, which counts against it.
            room = quotas.lock_quota(uow, self.difference.owner_id, PlanQuota.STORAGE_MB)
            if room is not None and room < written.recorded * RECORD_BYTES:
                raise _ComparisonPaused(PauseReason.QUOTA_FULL)
        watch.recorded += written.recorded
        watch.members += written.members

    def _end(self) -> None:
        difference = self.difference
        with self.resources.unit_of_work() as uow:
            watch = self._lock_watch(uow)
            if self.progress.get("is_many"):
                announce_event(
                    uow,
                    difference.owner_id,
                    FeedEventType.SEGMENT_MANY,
                    difference.segment_id,
                    list_id=difference.list_id,
                    segment_id=difference.segment_id,
                    day=difference.day.isoformat(),
                    entered=self.progress["entered"],
                    left=self.progress["left"],
                )
            watch.compared_day = difference.day
            watch.compared_at = func.now()
            watch.imports_seen_at = datetime.fromisoformat(self.progress["seen_at"])
            watch.is_silent = False
            watch.pause_reason = None
            watch.progress = None
            watch.due_at = self.due_at
