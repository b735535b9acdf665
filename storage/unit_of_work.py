"""One request or task step is one transaction. Only this module commits."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from sqlalchemy.orm import Session, sessionmaker

from core.errors import TransientError
from core.logging import get_logger
from core.telemetry.statement_spans import statement_span
from storage.broker import Broker
from storage.redis.notifications import Notifier

log = get_logger(__name__)


class UnitOfWork(AbstractContextManager["UnitOfWork"]):
    """Commits when its block ends well, and rolls back otherwise.

    ``after_commit`` takes the actions that must follow a commit: sending a job, notifying a
    waiter. A rollback drops them. A crash may lose them, so each
    has a sweep that does it later.
    """

    def __init__(
        self,
        sessions: sessionmaker[Session],
        broker: Broker,
        notifier: Notifier,
        waiter: str | None,
    ) -> None:
        self.session = sessions()
        self.broker = broker
        self.notifier = notifier
        self.waiter = waiter
        self._after_commit: list[Callable[[], object]] = []

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
