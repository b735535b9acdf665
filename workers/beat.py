"""Beat: sends periodic tasks when they are due."""

import signal
import sys

from celery.beat import Scheduler, Service

from core.logging import configure_logging
from core.settings import Settings
from workers.app import build_app


def run(settings: Settings) -> None:
    """Send periodic tasks when they are due, until SIGTERM."""
    # Celery's own command is not used: its signal handler continues with a schedule that may be
    # half made, so a stop soon after the start would end in a traceback.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    configure_logging(settings)
    app = build_app(settings)
    app.finalize()
    # In memory: tasks that were due while beat was away are not made up for, so nothing is stored.
    Service(app, scheduler_cls=Scheduler).start()
