"""The renewing of a lease while its holder works."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from core.logging import get_logger
from services.jobs.lease import RENEW_EVERY_SECONDS, LeaseLost

log = get_logger(__name__)


@contextmanager
def heartbeat(renew: Callable[[], None]) -> Iterator[None]:
    """Renew the lease each second in a thread of its own, until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=_renew_until, args=(stop, renew), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _renew_until(stop: threading.Event, renew: Callable[[], None]) -> None:
    while not stop.wait(RENEW_EVERY_SECONDS):
        try:
            renew()
        except LeaseLost:
            # The work's next write raises too; until then it goes on in vain.
            return
        except SQLAlchemyError as error:
            log.warning("lease.not_renewed", reason=type(error).__name__)
