"""The unit of work, which is the transaction of a request or of a step in a task."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, func, update

from core.errors import TransientError
from core.logging import get_logger
from core.telemetry.statement_spans import statement_span

if TYPE_CHECKING:
    from sqlalchemy.orm import InstrumentedAttribute, Session, sessionmaker

    from core.settings import Settings
    from storage.broker import Broker
    from storage.clients import Clients
    from storage.encryption import KeyWrapper
    from storage.redis.notifier import Notifier

log = get_logger(__name__)


class UnitOfWork(AbstractContextManager["UnitOfWork"]):
    """A transaction that commits at the end of its ``with`` block, and rolls back after an error.

    ``after_commit`` registers actions to run after the commit, such as sending a job's message. A
    rollback discards the registered actions. A crash after the commit loses the registered actions,
    so a sweep must be able to repeat them.
    """

    def __init__(self, sessions: "sessionmaker[Session]", clients: "Clients") -> None:
        self.session = sessions()
        self.waiter = clients.waiter
        self._clients = clients
        self._after_commit: list[Callable[[], object]] = []

    @property
    def settings(self) -> "Settings":
        return self._clients.settings

    @property
    def broker(self) -> "Broker":
        return self._clients.broker

    @property
    def key_wrapper(self) -> "KeyWrapper":
        return self._clients.key_wrapper

    @property
    def notifier(self) -> "Notifier":
        return self._clients.notifier

    def after_commit(self, action: Callable[[], object]) -> None:
        self._after_commit.append(action)

    def roll_back(self) -> None:
        """Discard all changes, and return the connection to the pool.

        The next statement begins a new transaction.
        """
        self._after_commit.clear()
        self.session.close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None:
                with statement_span("COMMIT"):
                    self.session.commit()
        finally:
            self.session.close()
        if exc_type is None:
            for action in self._after_commit:
                try:
                    action()
                except TransientError as error:
                    log.warning("after_commit.failed", reason=str(error))
                except Exception:  # Only log the error, because the commit has succeeded.
                    log.exception("after_commit.broke")


def record_moment_once(
    uow: UnitOfWork,
    moment: "InstrumentedAttribute[datetime | None]",
    *conditions: ColumnElement[bool],
) -> int:
    """Set a timestamp column to now where it is empty, and return the number of updated rows."""
    statement = (
        update(moment.class_)
        .where(*conditions, moment.is_(None))
        .values({moment: func.now()})
        .returning(moment)
    )
    return len(uow.session.execute(statement).all())
