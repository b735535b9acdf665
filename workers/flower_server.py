"""Flower: a page for operators that shows every worker and task."""

import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import flower
import flower.command
import flower.events
from flower.app import Flower
from flower.events import EventsState
from flower.views import BaseHandler
from flower.views.error import NotFoundErrorHandler

from core.log_output import configure_logging
from core.process.garbage_collection import end_start
from core.settings import SettingsError
from core.settings.store_settings import FlowerSettings
from storage.broker import celery_app
from workers.task_queues import queues_of_tasks


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
        shows_periodic: whether it shows maintenance too.
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


class ReadableEvents(EventsState):  # type: ignore[misc]
    """Flower's memory of tasks, by names such as ``media/attachment.process``.

    Each kind of maintenance runs every few seconds or minutes, and would bury what people asked
    for; ``pressroom maintenance`` shows it. With ``shows_periodic`` it is there too.
    """

    shows_periodic = False

    def event(self, event: dict[str, Any]) -> None:
        if event["type"].startswith("task-") and not self._is_shown(event):
            return
        super().event(event)

    def _is_shown(self, event: dict[str, Any]) -> bool:
        """Give the task its name, if it is shown."""
        name = event.get("name")
        if name is None:
            # Later events of a task name only its id. For a task that is left out, or that a worker
            # got before Flower listened, they would make a row without a name.
            return event["uuid"] in self.tasks
        known = queues_of_tasks().get(name)
        if known is None:
            return True
        event["name"] = f"{known.queue}/{name}"
        return self.shows_periodic or not known.is_periodic


# Its script has a table scroll below a header that is a table of its own, whose columns are as wide
# as they were before the first rows came. A single table can't get out of step; the card around it
# scrolls instead.


_STATIC = Path(flower.__file__).parent / "static"
_APART = "scrollX: true,"
_STYLE = """
.workers-table-card, .tasks-table-card { overflow-x: auto; }
"""


def script() -> str:
    return (_STATIC / "js" / "flower.js").read_text().replace(_APART, "")


def style() -> str:
    return (_STATIC / "css" / "flower.css").read_text() + _STYLE


class _Served(BaseHandler):  # type: ignore[misc]
    def initialize(self, content_type: str, text: str) -> None:
        self._content_type, self._text = content_type, text

    def get(self) -> None:
        self.set_header("Content-Type", self._content_type)
        # The page's URL of it names a hash of Flower's own text.
        self.set_header("Cache-Control", "no-cache")
        self.finish(self._text)


HANDLERS = [
    (r"/static/js/flower\.js", _Served, {"content_type": "text/javascript", "text": script()}),
    (r"/static/css/flower\.css", _Served, {"content_type": "text/css", "text": style()}),
]
