"""Each request or task step is one transaction, which this module commits.

A single statement can be a transaction of its own: ``storage.database.Database.rows``.
"""

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
    from storage.encryption import KeyWrapper
    from storage.redis.notifier import Notifier
    from storage.resources import Resources

log = get_logger(__name__)


class UnitOfWork(AbstractContextManager["UnitOfWork"]):
    """Commits when its block ends well, and rolls back otherwise.

    ``after_commit`` takes the actions that must follow a commit: sending a job, notifying a
    waiter. A rollback drops them. A crash may lose them, so each
    has a sweep that does it later.
    """

    def __init__(self, sessions: "sessionmaker[Session]", resources: "Resources") -> None:
        self.session = sessions()
        self.waiter = resources.waiter
        self._resources = resources
        self._after_commit: list[Callable[[], object]] = []

    @property
    def settings(self) -> "Settings":
        return self._resources.settings

    @property
    def broker(self) -> "Broker":
        return self._resources.broker

    @property
    def key_wrapper(self) -> "KeyWrapper":
        return self._resources.key_wrapper

    @property
    def notifier(self) -> "Notifier":
        return self._resources.notifier

    def after_commit(self, action: Callable[[], object]) -> None:
        self._after_commit.append(action)

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
                except Exception:  # the commit stands: a bug in its follow-up is no failure of it
                    log.exception("after_commit.broke")


def note_once(
    uow: UnitOfWork,
    moment: "InstrumentedAttribute[datetime | None]",
    *conditions: ColumnElement[bool],
) -> int:
    """Set this moment to now in rows that fit and don't have it yet; returns their number."""
    statement = update(moment.class_).where(*conditions, moment.is_(None))
    noted = statement.values({moment: func.now()}).returning(moment)
    return len(uow.session.execute(noted).all())
