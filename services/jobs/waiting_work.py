"""Queues of work that is too small for jobs, such as the bodies of senders' requests.

Each queue is a table. A worker locks due rows and begins a try of each row. The worker commits
before it processes the rows, because the processing may kill the worker or break the connection to
the database. If a try doesn't end, the row becomes due again after a pause.

A worker that has processed a row deletes it. ``end_tries`` records all other ends of tries, unless
the next worker must know that the row may be processed partly. An outage of the database can't use
up the tries of a row, because no try begins during the outage.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, delete, func, select, update

from core.pauses import Pauses
from models.waiting_work import WaitingWork
from services.jobs.pauses import build_pause
from storage.unit_of_work import UnitOfWork

# A queue that gives rows up does so after this many tries that didn't end.
MAX_UNFINISHED_TRIES = 10
# The largest number in the column ``unfinished_tries``.
_MAX_NUMBER = 1_000

Row = TypeVar("Row", bound=WaitingWork)


@dataclass(frozen=True)
class WorkQueue(Generic[Row]):
    """Each pause in ``pauses`` must be longer than a try."""

    model: type[Row]
    pauses: Pauses

    def select_due(self, *columns: Any) -> Select[*tuple[Any, ...]]:
        query = select(*columns).where(self.model.due_at <= func.now())
        return query.with_for_update(skip_locked=True)

    def begin_tries(self, uow: UnitOfWork, ids: Collection[int]) -> list[Row]:
        """Return the locked rows in the order of ``ids``."""
        if not ids:
            return []
        tries = self.model.unfinished_tries + 1
        statement = (
            update(self.model)
            .where(self.model.id.in_(ids))
            .values(
                unfinished_tries=func.least(tries, _MAX_NUMBER),
                due_at=func.now() + build_pause(self.pauses, tries),
            )
            .returning(self.model)
            .execution_options(synchronize_session=False)
        )
        rows = {row.id: row for row in uow.session.scalars(statement)}
        return [rows[each] for each in ids]

    def end_tries(
        self,
        uow: UnitOfWork,
        ids: Collection[int],
        pause: timedelta | ColumnElement[timedelta] = timedelta(),
        **changes: Any,
    ) -> None:
        statement = (
            update(self.model)
            .where(self.model.id.in_(ids))
            .values(
                unfinished_tries=func.greatest(self.model.unfinished_tries - 1, 0),
                due_at=func.now() + pause,
                **changes,
            )
            .execution_options(synchronize_session=False)
        )
        uow.session.execute(statement)

    def delete_rows(self, uow: UnitOfWork, ids: Collection[int]) -> None:
        statement = delete(self.model).where(self.model.id.in_(ids))
        uow.session.execute(statement.execution_options(synchronize_session=False))
