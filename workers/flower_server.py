"""Runs Flower, which shows every worker and task to operators."""

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
from storage.broker import create_celery_app
from workers.task_queues import list_task_queues

_STATIC = Path(flower.__file__).parent / "static"
_SCROLLING_OPTION = "scrollX: true,"
_STYLE = """
.workers-table-card, .tasks-table-card { overflow-x: auto; }
"""


class _ReadableFlower(Flower):  # type: ignore[misc]
    """A variant of Flower that aligns table columns and responds only to allowed host names.

    With DNS rebinding, a malicious page can point its host name to Flower's address. Without a
    check of host names, the page could read the parts of Flower that need no password.
    """

    names: Collection[str] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.add_handlers(r".*", _static_handlers())

    def start(self) -> None:
        # Flower's signal handler raises SystemExit, which is lost inside a finalizer.
        self.io_loop.asyncio_loop.add_signal_handler(signal.SIGTERM, self.io_loop.stop)
        super().start()

    def find_handler(self, request: Any, **more: Any) -> Any:
        if self.names and request.host_name not in self.names:
            return self.get_handler_delegate(request, NotFoundErrorHandler)
        return super().find_handler(request, **more)


def run_flower(
    settings: FlowerSettings,
    host: str,
    port: int,
    host_names: Collection[str] = (),
    *,
    shows_periodic: bool = False,
) -> None:
    """Serve Flower until a stop signal, never without a password.

    An empty collection of ``host_names`` allows all host names.
    """
    password = settings.flower_password and settings.flower_password.get_secret_value()
    if not password:
        raise SettingsError("PRESSROOM_FLOWER_PASSWORD: is required to start Flower")
    login = f"{settings.flower_user}:{password}"
    configure_logging(settings)
    _ReadableFlower.names = frozenset(host_names)
    flower.command.Flower = _ReadableFlower
    ReadableEvents.shows_periodic = shows_periodic
    flower.events.EventsState = ReadableEvents
    app = create_celery_app(settings)
    # Remove the retry option, because Flower's asynchronous Redis client accepts only an
    # asynchronous retry class.
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
    """Flower's task store, which adds the queue to each task name.

    Maintenance tasks are hidden by default, because they run so often that they would hide all
    other tasks.
    """

    shows_periodic = False

    def event(self, event: dict[str, Any]) -> None:
        if event["type"].startswith("task-") and not self._is_shown(event):
            return
        super().event(event)

    def _is_shown(self, event: dict[str, Any]) -> bool:
        name = event.get("name")
        if name is None:
            # Only the first event of a task contains its name. If later events of a hidden task
            # were stored, Flower would show a task without a name.
            return event["uuid"] in self.tasks
        task_queue = list_task_queues().get(name)
        if task_queue is None:
            return True
        event["name"] = f"{task_queue.queue}/{name}"
        return self.shows_periodic or not task_queue.is_periodic


def load_flower_script() -> str:
    """Return Flower's JavaScript, changed so that tables don't scroll.

    Flower's script moves the headers of a scrolling table into a separate table, where they are
    misaligned after the first rows arrive. The card around the table scrolls instead.
    """
    return (_STATIC / "js" / "flower.js").read_text().replace(_SCROLLING_OPTION, "")


def load_flower_style() -> str:
    return (_STATIC / "css" / "flower.css").read_text() + _STYLE


class _StaticText(BaseHandler):  # type: ignore[misc]
    def initialize(self, content_type: str, text: str) -> None:
        self._content_type = content_type
        self._text = text

    def get(self) -> None:
        self.set_header("Content-Type", self._content_type)
        # Browsers must not cache the changed file, because the hash in the URL belongs to Flower's
        # original file.
        self.set_header("Cache-Control", "no-cache")
        self.finish(self._text)


def _static_handlers() -> list[Any]:
    script = {"content_type": "text/javascript", "text": load_flower_script()}
    style = {"content_type": "text/css", "text": load_flower_style()}
    return [
        (r"/static/js/flower\.js", _StaticText, script),
        (r"/static/css/flower\.css", _StaticText, style),
    ]
