"""Beat: sends periodic tasks when they are due."""

import signal
import sys

from celery.beat import Scheduler, Service

from core.logging import configure_logging
from core.settings import Settings
from workers.app import build_app


def run(settings: Settings) -> None:
    """Send what is due until told to stop."""
    # Not through Celery's command: its signal handler goes on with a schedule that may only be half
    # made, so that a stop soon after the start would end in a traceback.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    configure_logging(settings)
    app = build_app(settings)
    app.finalize()
    # In memory: what was due while no clock ran is not made up for, so there is nothing to keep.
    Service(app, scheduler_cls=Scheduler).start()
