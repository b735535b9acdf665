"""Flower: a page for operators that shows every worker and task."""

import signal
from collections.abc import Collection
from typing import Any

import flower.command
import flower.events
from flower.app import Flower
from flower.views.error import NotFoundErrorHandler

from core.logging import configure_logging
from core.process.garbage_collection import end_start
from core.settings import SettingsError
from core.settings.store_settings import FlowerSettings
from storage.broker import celery_app
from workers.monitor.readable_events import ReadableEvents
from workers.monitor.straight_tables import HANDLERS


class _ReadableFlower(Flower):  # type: ignore[misc]
    """Flower with straight tables, that may answer to some host names alone.

    A foreign page may give its own host name our address (DNS rebinding), and would read what needs
    no password.
    """

    names: Collection[str] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.add_handlers(r".*", HANDLERS)

    def start(self) -> None:
        # Flower's own handler raises SystemExit, which is lost when it interrupts a finalizer.
        self.io_loop.asyncio_loop.add_signal_handler(signal.SIGTERM, self.io_loop.stop)
        super().start()

    def find_handler(self, request: Any, **more: Any) -> Any:
        if self.names and request.host_name not in self.names:
            return self.get_handler_delegate(request, NotFoundErrorHandler)
        return super().find_handler(request, **more)


def run(
    settings: FlowerSettings,
    host: str,
    port: int,
    host_names: Collection[str] = (),
    *,
    shows_periodic: bool = False,
) -> None:
    """Serve Flower until told to stop. It never runs without a password.

    Args:
        host_names: the names that it answers to; without any, it answers to all.
        shows_periodic: whether it shows upkeep too.
    """
    password = settings.flower_password and settings.flower_password.get_secret_value()
    if not password:
        raise SettingsError("PRESSROOM_FLOWER_PASSWORD: Flower does not start without a password")
    login = f"{settings.flower_user}:{password}"
    configure_logging(settings)
    _ReadableFlower.names = frozenset(host_names)
    flower.command.Flower = _ReadableFlower
    ReadableEvents.shows_periodic = shows_periodic
    flower.events.EventsState = ReadableEvents
    app = celery_app(settings)
    # Flower counts queues by an asynchronous client of its own, which has its own kind of retries.
    app.conf.broker_transport_options.get("sentinel_kwargs", {}).pop("retry", None)
    end_start()
    app.start(
        [
            "flower",
            f"--address={host}",
            f"--port={port}",
            f"--basic-auth={login}",
            f"--read-only={settings.flower_read_only}",
            "--tasks-columns=name,state,kwargs,received,started,runtime,worker,uuid",
        ]
    )
