"""Counts the tries to process a row that waits for work, such as the body of a sender's request.

A worker calls ``begin_tries`` in a transaction of its own before it processes rows, because the
processing may kill the worker or break the connection to the database. A worker that processes a
row deletes the row in the same transaction, and with it the numbers of tries. All other outcomes of
a try are recorded by ``take_back_tries`` or ``record_failures``.

Only rows that were never tried may be processed together. Rows whose try failed or didn't end are
processed one by one, so that the next try shows which row is at fault. A row is given up after
``MAX_UNFINISHED_TRIES`` tries that didn't end. An outage can't use up these tries, because no try
begins while the database is unavailable.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, update

from core.pauses import Pauses
from models.waiting_work import WaitingWork
from services.jobs.pauses import build_pause
from storage.unit_of_work import UnitOfWork

MAX_UNFINISHED_TRIES = 10
# The largest number in the columns ``failures`` and ``unfinished_tries``.
_MAX_NUMBER = 1_000


def begin_tries(
    uow: UnitOfWork, model: type[WaitingWork], rows: ColumnElement[bool], pauses: Pauses
) -> None:
    """Record that a try of each row begins.

    If the try doesn't end, the next try is due after the pause. The pause must be longer than a
    try.
    """
    number = model.failures + model.unfinished_tries + 1
    _update(
        uow,
        model,
        rows,
        unfinished_tries=func.least(model.unfinished_tries + 1, _MAX_NUMBER),
        due_at=func.now() + build_pause(pauses, number),
    )


def take_back_tries(
    uow: UnitOfWork,
    model: type[WaitingWork],
    rows: ColumnElement[bool],
    pause: timedelta = timedelta(),
) -> None:
    """Record that the rows weren't processed for a reason that lies outside of the rows."""
    _update(uow, model, rows, unfinished_tries=_count_down(model), due_at=func.now() + pause)


def record_failures(
    uow: UnitOfWork, model: type[WaitingWork], rows: ColumnElement[bool], pauses: Pauses | None
) -> None:
    """Record that the tries of the rows ended with an error.

    ``pauses``: the pauses before the next try, or ``None`` if the rows were tried together and the
    next try of each row begins at once.
    """
    pause = build_pause(pauses, model.failures + 1) if pauses else timedelta()
    _update(
        uow,
        model,
        rows,
        failures=func.least(model.failures + 1, _MAX_NUMBER),
        unfinished_tries=_count_down(model),
        due_at=func.now() + pause,
    )


def must_be_tried_alone(failures: int, unfinished_tries: int) -> bool:
    """Return whether a row may not be processed together with other rows."""
    return failures > 0 or unfinished_tries > 0


def _count_down(model: type[WaitingWork]) -> ColumnElement[int]:
    return func.greatest(model.unfinished_tries - 1, 0)


def _update(
    uow: UnitOfWork, model: type[WaitingWork], rows: ColumnElement[bool], **changes: Any
) -> None:
    statement = update(model).where(rows).values(**changes)
    uow.session.execute(statement.execution_options(synchronize_session=False))
