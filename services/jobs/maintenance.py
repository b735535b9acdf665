"""Runs maintenance, which is periodic work for the whole deployment.

Each kind of maintenance has a database row with the time of its next run. Each second, every worker
enqueues the maintenance tasks that are due. The worker that receives a task claims the row, and a
heartbeat renews the lease. The lease ensures that only one process at a time runs a kind of
maintenance. Each write of a run checks that no later run has claimed the row. If the broker
delivers a task twice, the second delivery has no effect. All times come from the database's clock.

The next run is due one interval after the end of the previous run. Runs that were missed during an
outage are skipped.
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
from services.jobs.lease import LeaseLost, lease_end, run_heartbeat
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

# A function that runs one kind of maintenance once. The function receives the time at which the run
# started, taken from the database's clock. A maintenance function returns the number of processed
# items.
MaintenanceWork = Callable[[datetime], int | None]

# The limits for the delay before an overdue maintenance task is sent again. The delay grows each
# time the task is sent again, so that messages don't pile up in a queue without workers.
_MIN_RESEND_DELAY = timedelta(seconds=10)
_MAX_RESEND_DELAY = timedelta(minutes=1)


@dataclass(frozen=True)
class MaintenanceKind:
    # The name of the kind of maintenance is also the name of its Celery task.
    name: str
    every: timedelta
    run: Callable[[Resources, datetime], int | None]
    queue: Queue
    # A maintenance run that takes longer than ``max_run`` loses its lease, so that a hanging run
    # doesn't block later runs.
    max_run: timedelta
    # The pause after a failed maintenance run, unless the normal interval ``every`` is shorter.
    max_failure_pause: timedelta
    # Returns whether work is waiting for this kind of maintenance, such as unprocessed reports of
    # mail providers. If work is waiting, this maintenance runs within a second, even before its due
    # time.
    has_work: Callable[[Resources], bool] | None = None


@dataclass(frozen=True)
class MaintenanceRun:
    kind: MaintenanceKind
    attempt: int
    began_at: datetime


_kinds: dict[str, MaintenanceKind] = {}


def register_maintenance(
    name: str,
    *,
    every: timedelta,
    run: Callable[[Resources, datetime], int | None],
    queue: Queue = Queue.MAINTENANCE,
    max_run: timedelta = timedelta(hours=1),
    max_failure_pause: timedelta = timedelta(minutes=1),
    has_work: Callable[[Resources], bool] | None = None,
) -> MaintenanceKind:
    if name in _kinds:
        raise ValueError(f"maintenance {name} is registered twice")
    _kinds[name] = MaintenanceKind(name, every, run, queue, max_run, max_failure_pause, has_work)
    return _kinds[name]


def list_kinds() -> frozenset[MaintenanceKind]:
    return frozenset(_kinds.values())


def get_kind(name: str) -> MaintenanceKind:
    if name not in _kinds:
        raise MAINTENANCE_NOT_FOUND(name=name, names=", ".join(sorted(_kinds)))
    return _kinds[name]


# The statement for finding due maintenance must be cheap, because every worker runs it each second.
_LIST_KINDS = Statement(
    "SELECT name, every_seconds, greatest(due_at, send_after, lease_expires_at) <= now()"
    " FROM maintenance"
)


def send_due_tasks(resources: Resources) -> int:
    """Enqueue each task that is due or has waiting work, and that isn't running.

    Returns the number of enqueued tasks.
    """
    rows = resources.database.rows(_LIST_KINDS)
    known_seconds = {name: every_seconds for name, every_seconds, _ in rows}
    changed = [
        kind for kind in _kinds.values() if known_seconds.get(kind.name) != _interval_seconds(kind)
    ]
    hurried = [kind.name for kind in _kinds.values() if kind.has_work and kind.has_work(resources)]
    if not changed and not hurried and not any(looks_due for _, _, looks_due in rows):
        return 0
    with resources.unit_of_work() as uow:
        if changed:
            _write_rows(uow, changed)
        due_names = (
            select(Maintenance.name)
            .where(
                Maintenance.name.in_(_kinds),
                Maintenance.send_after <= func.now(),
                _is_free(),
                or_(_is_due(), Maintenance.name.in_(hurried)),
            )
            .with_for_update(skip_locked=True)
        )
        overdue = func.now() - func.least(Maintenance.due_at, func.now())
        pause = func.least(func.greatest(_MIN_RESEND_DELAY, overdue), _MAX_RESEND_DELAY)
        statement = (
            update(Maintenance)
            .where(Maintenance.name.in_(due_names.scalar_subquery()))
            .values(send_after=func.now() + pause)
            .returning(Maintenance.name)
        )
        names = list(uow.session.scalars(statement))
    return sum(resources.broker.send(name, _kinds[name].queue, {}) for name in names)


def list_all_rows(uow: UnitOfWork) -> list[Maintenance]:
    """Include the kinds that this release doesn't know."""
    return list(uow.session.scalars(select(Maintenance).order_by(Maintenance.name)))


def request_run(uow: UnitOfWork, name: str) -> None:
    row = uow.session.get(Maintenance, name, with_for_update=True)
    if row is None:
        names = ", ".join(known_row.name for known_row in list_all_rows(uow))
        raise MAINTENANCE_NOT_FOUND(name=name, names=names)
    if uow.session.scalar(select(is_running(name))):
        raise MAINTENANCE_RUNNING(name=name)
    row.due_at = func.now()
    row.send_after = func.now()


def read_bookmark(uow: UnitOfWork, kind: MaintenanceKind) -> int | None:
    """Return the id of the row from which the next run resumes the scan."""
    return uow.session.scalar(select(Maintenance.bookmark).where(Maintenance.name == kind.name))


def write_bookmark(uow: UnitOfWork, kind: MaintenanceKind, place: int | None) -> None:
    statement = update(Maintenance).where(Maintenance.name == kind.name)
    uow.session.execute(statement.values(bookmark=place))


def read_state(uow: UnitOfWork, kind: MaintenanceKind) -> dict[str, Any]:
    query = select(Maintenance.state).where(Maintenance.name == kind.name)
    return uow.session.scalar(query) or {}


def write_state(uow: UnitOfWork, kind: MaintenanceKind, state: dict[str, Any]) -> None:
    statement = update(Maintenance).where(Maintenance.name == kind.name)
    uow.session.execute(statement.values(state=state))


def is_running(name: str) -> ColumnElement[bool]:
    return exists().where(Maintenance.name == name, Maintenance.lease_expires_at > func.now())


def require_run(uow: UnitOfWork, kind: MaintenanceKind, began_at: datetime) -> None:
    query = select(Maintenance.name).where(
        Maintenance.name == kind.name,
        Maintenance.last_started_at == began_at,
        Maintenance.lease_expires_at.is_not(None),
    )
    if uow.session.scalar(query) is None:
        raise LeaseLost(kind.name)


def run_if_due(resources: Resources, kind: MaintenanceKind, work: MaintenanceWork) -> None:
    is_hurried = kind.has_work is not None and kind.has_work(resources)
    with resources.unit_of_work() as uow:
        run = _claim(uow, kind, *(() if is_hurried else (_is_due(),)))
    if run is not None:
        _do_work(resources, run, work)


def run_now(resources: Resources, kind: MaintenanceKind, work: MaintenanceWork) -> Maintenance:
    with resources.unit_of_work() as uow:
        _write_rows(uow, [kind])
        run = _claim(uow, kind)
    if run is None:
        raise MAINTENANCE_RUNNING(name=kind.name)
    _do_work(resources, run, work)
    with resources.unit_of_work() as uow:
        return uow.session.get_one(Maintenance, kind.name)


def _write_rows(uow: UnitOfWork, kinds: Iterable[MaintenanceKind]) -> None:
    # Sort the rows, so that two processes that write the same rows at the same time can't deadlock.
    rows = sorted((kind.name, _interval_seconds(kind)) for kind in kinds)
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


def _interval_seconds(kind: MaintenanceKind) -> int:
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
            # If this process dies, another process sends the maintenance task again after the lease
            # has expired.
            send_after=func.now(),
        )
        .returning(Maintenance.attempt, func.now().label("now"))
    )
    row = uow.session.execute(statement).one_or_none()
    return None if row is None else MaintenanceRun(kind, row.attempt, row.now)


def _do_work(resources: Resources, run: MaintenanceRun, work: MaintenanceWork) -> None:
    try:
        in_time = Maintenance.last_started_at > func.now() - run.kind.max_run
        renew = partial(_change_row, resources, run, in_time, lease_expires_at=lease_end())
        with run_heartbeat(renew):
            amount = work(run.began_at)
    except Exception as error:
        pause = min(run.kind.every, run.kind.max_failure_pause)
        try:
            _end_run(resources, run, pause, last_error=f"{type(error).__name__}: {error}")
        except (LeaseLost, SQLAlchemyError) as unwritten:
            log.warning("maintenance.error_not_written", reason=type(unwritten).__name__)
        raise
    _end_run(resources, run, run.kind.every, last_error=None, last_result={"done": amount})


def _end_run(resources: Resources, run: MaintenanceRun, pause: timedelta, **outcome: Any) -> None:
    now = func.statement_timestamp()
    _change_row(
        resources,
        run,
        lease_expires_at=None,
        last_finished_at=now,
        due_at=now + pause,
        # If there is new work after a successful run, a worker may begin the next run immediately.
        send_after=now if run.kind.has_work and outcome["last_error"] is None else now + pause,
        **outcome,
    )


def _change_row(
    resources: Resources, run: MaintenanceRun, *fence: ColumnElement[bool], **changes: Any
) -> None:
    statement = (
        update(Maintenance)
        .where(
            Maintenance.name == run.kind.name,
            Maintenance.attempt == run.attempt,
            Maintenance.lease_expires_at.is_not(None),
            *fence,
        )
        .values(**changes)
        .returning(Maintenance.name)
    )
    with resources.unit_of_work() as uow:
        if uow.session.execute(statement).one_or_none() is None:
            raise LeaseLost(run.kind.name)
