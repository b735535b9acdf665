"""Maintenance: the periodic work of the whole deployment. Its rows say what is due.

Each second the sweep of every worker looks for due rows and sends their tasks. The worker that gets
a task claims the row, as one claims a job: by compare-and-set, with a lease that is renewed while
the work goes on, and a number that fences its writes. Each kind therefore runs in one process at a
time, and a second message does nothing. Every time is compared by the database's clock.

A kind rests for its interval after each run, and rounds that were missed are not made up for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError

from core.errors.jobs import MAINTENANCE_NOT_FOUND, MAINTENANCE_RUNNING
from core.logging import get_logger
from core.queues import Queue
from models import Maintenance
from services.jobs.lease import LeaseLost, heartbeat, lease_end
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

# Work with the time at which it began, by the database's clock; it returns how much it did.
MaintenanceWork = Callable[[datetime], int | None]

# A message that no worker takes is sent again: after ten seconds at first, then as long again as
# the work is overdue by then, so that a queue without workers does not fill up.
_MIN_RESEND = timedelta(seconds=10)
_MAX_RESEND = timedelta(minutes=1)


@dataclass(frozen=True)
class MaintenanceKind:
    """A kind of periodic work, declared once by the module that does it."""

    name: str  # the task's name too
    every: timedelta
    run: Callable[[Resources, datetime], int | None]
    queue: Queue
    # A run that takes longer loses its lease, so that a run that hangs is not the last one.
    max_run: timedelta
    # After a run that failed the next one comes as soon as that, or after its interval.
    max_failure_pause: timedelta


@dataclass(frozen=True)
class MaintenanceRun:
    """A worker's hold on one kind of maintenance."""

    kind: MaintenanceKind
    attempt: int
    began_at: datetime


_kinds: dict[str, MaintenanceKind] = {}


def register(
    name: str,
    *,
    every: timedelta,
    run: Callable[[Resources, datetime], int | None],
    queue: Queue = Queue.MAINTENANCE,
    max_run: timedelta = timedelta(hours=1),
    max_failure_pause: timedelta = timedelta(minutes=1),
) -> MaintenanceKind:
    if name in _kinds:
        raise ValueError(f"maintenance {name} is registered twice")
    _kinds[name] = MaintenanceKind(name, every, run, queue, max_run, max_failure_pause)
    return _kinds[name]


def registered() -> frozenset[MaintenanceKind]:
    """The kinds that the modules of this process have registered."""
    return frozenset(_kinds.values())


def kind_named(name: str) -> MaintenanceKind:
    """Raises ``maintenance.not_found``."""
    if name not in _kinds:
        raise MAINTENANCE_NOT_FOUND(name=name, names=", ".join(sorted(_kinds)))
    return _kinds[name]


# Each second in each worker, and mostly nothing is due.
_LOOK = Statement(
    "SELECT name, every_seconds, greatest(due_at, send_after, lease_expires_at) <= now()"
    " FROM maintenance"
)


def send_due(resources: Resources) -> int:
    """Send what is due and runs nowhere; returns the number of messages."""
    found = resources.database.rows(_LOOK)
    known = {name: every_seconds for name, every_seconds, _ in found}
    changed = [kind for kind in _kinds.values() if known.get(kind.name) != _seconds(kind)]
    if not changed and not any(looks_due for _, _, looks_due in found):
        return 0
    with resources.unit_of_work() as uow:
        if changed:
            _write(uow, changed)
        row = Maintenance
        is_due = row.name.in_(_kinds), row.send_after <= func.now(), _is_free(), _is_due()
        due = select(row.name).where(*is_due).with_for_update(skip_locked=True)
        pause = func.least(func.greatest(_MIN_RESEND, func.now() - row.due_at), _MAX_RESEND)
        taken = update(row).where(row.name.in_(due.scalar_subquery()))
        put_off = taken.values(send_after=func.now() + pause).returning(row.name)
        sent = list(uow.session.scalars(put_off))
    return sum(resources.broker.send(name, _kinds[name].queue, {}) for name in sent)


def records(uow: UnitOfWork) -> list[Maintenance]:
    """The rows of the kinds that this release knows."""
    query = select(Maintenance).where(Maintenance.name.in_(_kinds)).order_by(Maintenance.name)
    return list(uow.session.scalars(query))


def all_records(uow: UnitOfWork) -> list[Maintenance]:
    """The rows of all kinds, those too that the modules of this process don't register."""
    return list(uow.session.scalars(select(Maintenance).order_by(Maintenance.name)))


def make_due(uow: UnitOfWork, name: str) -> None:
    """Have a worker run it soon; raises ``maintenance.not_found``, ``maintenance.running``."""
    row = uow.session.get(Maintenance, name, with_for_update=True)
    if row is None:
        names = ", ".join(each.name for each in all_records(uow))
        raise MAINTENANCE_NOT_FOUND(name=name, names=names)
    if uow.session.scalar(select(is_running(name))):
        raise MAINTENANCE_RUNNING(name=name)
    row.due_at = row.send_after = func.now()


def bookmark(uow: UnitOfWork, kind: MaintenanceKind) -> int | None:
    """Where the work goes on, which goes through a large table in several runs."""
    return uow.session.scalar(select(Maintenance.bookmark).where(Maintenance.name == kind.name))


def set_bookmark(uow: UnitOfWork, kind: MaintenanceKind, place: int | None) -> None:
    row = update(Maintenance).where(Maintenance.name == kind.name)
    uow.session.execute(row.values(bookmark=place))


def is_running(name: str) -> ColumnElement[bool]:
    """A condition: some process does this kind."""
    return exists().where(Maintenance.name == name, Maintenance.lease_expires_at > func.now())


def require_hold(uow: UnitOfWork, kind: MaintenanceKind, began_at: datetime) -> None:
    """Raises ``LeaseLost`` once another run than the one that began then has the kind."""
    held = Maintenance.last_started_at == began_at, Maintenance.lease_expires_at.is_not(None)
    row = select(Maintenance.name).where(Maintenance.name == kind.name, *held)
    if uow.session.scalar(row) is None:
        raise LeaseLost(kind.name)


def run_due(resources: Resources, kind: MaintenanceKind, work: MaintenanceWork) -> None:
    """Do the work, if it is due and no process does it; raises what the work raises."""
    with resources.unit_of_work() as uow:
        run = _claim(uow, kind, _is_due())
    if run is not None:
        _do(resources, run, work)


def run_now(resources: Resources, kind: MaintenanceKind, work: MaintenanceWork) -> Maintenance:
    """Do the work, due or not; raises ``maintenance.running``, and what the work raises."""
    with resources.unit_of_work() as uow:
        _write(uow, [kind])
        run = _claim(uow, kind)
    if run is None:
        raise MAINTENANCE_RUNNING(name=kind.name)
    _do(resources, run, work)
    with resources.unit_of_work() as uow:
        return uow.session.get_one(Maintenance, kind.name)


def _write(uow: UnitOfWork, kinds: Iterable[MaintenanceKind]) -> None:
    """Write the kinds' rows, and the intervals that a release has changed."""
    # In one order, so that two processes that write at once don't lock each other out.
    rows = sorted((kind.name, _seconds(kind)) for kind in kinds)
    statement = insert(Maintenance).values(
        [{"name": name, "every_seconds": seconds} for name, seconds in rows]
    )
    new = statement.excluded.every_seconds
    due_at = func.least(Maintenance.due_at, func.now() + new * timedelta(seconds=1))
    changed = statement.on_conflict_do_update(
        index_elements=["name"],
        set_={"every_seconds": new, "due_at": due_at},
        where=Maintenance.every_seconds != new,
    )
    uow.session.execute(changed)


def _seconds(kind: MaintenanceKind) -> int:
    return int(kind.every.total_seconds())


def _is_due() -> ColumnElement[bool]:
    return Maintenance.due_at <= func.now()


def _is_free() -> ColumnElement[bool]:
    return or_(Maintenance.lease_expires_at.is_(None), Maintenance.lease_expires_at < func.now())


def _claim(
    uow: UnitOfWork, kind: MaintenanceKind, *when: ColumnElement[bool]
) -> MaintenanceRun | None:
    statement = (
        update(Maintenance)
        .where(Maintenance.name == kind.name, _is_free(), *when)
        .values(
            attempt=Maintenance.attempt + 1,
            last_started_at=func.now(),
            lease_expires_at=lease_end(),
            # When this process is lost, the work is sent again as soon as its lease is over.
            send_after=func.now(),
        )
        .returning(Maintenance.attempt, func.now().label("now"))
    )
    claimed = uow.session.execute(statement).one_or_none()
    return None if claimed is None else MaintenanceRun(kind, claimed.attempt, claimed.now)


def _do(resources: Resources, run: MaintenanceRun, work: MaintenanceWork) -> None:
    try:
        in_time = Maintenance.last_started_at > func.now() - run.kind.max_run
        renew = partial(_change, resources, run, in_time, lease_expires_at=lease_end())
        with heartbeat(renew):
            done = work(run.began_at)
    except Exception as error:
        pause = min(run.kind.every, run.kind.max_failure_pause)
        try:
            _end(resources, run, pause, last_error=f"{type(error).__name__}: {error}")
        except (LeaseLost, SQLAlchemyError) as unwritten:
            log.warning("maintenance.error_not_written", reason=type(unwritten).__name__)
        raise
    _end(resources, run, run.kind.every, last_error=None, last_result={"done": done})


def _end(resources: Resources, run: MaintenanceRun, pause: timedelta, **outcome: Any) -> None:
    now = func.statement_timestamp()
    again = {"due_at": now + pause, "send_after": now + pause}
    _change(resources, run, lease_expires_at=None, last_finished_at=now, **again, **outcome)


def _change(
    resources: Resources, run: MaintenanceRun, *fence: ColumnElement[bool], **changes: Any
) -> None:
    held = Maintenance.attempt == run.attempt, Maintenance.lease_expires_at.is_not(None)
    statement = (
        update(Maintenance)
        .where(Maintenance.name == run.kind.name, *held, *fence)
        .values(**changes)
    )
    with resources.unit_of_work() as uow:
        if uow.session.execute(statement.returning(Maintenance.name)).one_or_none() is None:
            raise LeaseLost(run.kind.name)
