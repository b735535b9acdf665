"""What Flower hears of tasks: each by its lane and its kind, and none of those that recur."""

from collections import OrderedDict
from typing import Any

from flower.events import EventsState

from workers.monitor.task_lanes import lanes_of_tasks

# Later events of a task name only its id. As many tasks as Flower keeps.
_MAX_LEFT_OUT = 100_000


class ReadableEvents(EventsState):  # type: ignore[misc]
    """Flower's memory of tasks, by names such as ``media/attachment.process``.

    Each kind of upkeep runs every few seconds or minutes, and would bury what people asked for;
    ``pressroom upkeep`` shows it. With ``shows_periodic`` it is there too.
    """

    shows_periodic = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._left_out: OrderedDict[str, None] = OrderedDict()

    def event(self, event: dict[str, Any]) -> None:
        if event["type"].startswith("task-") and not self._is_shown(event):
            return
        super().event(event)

    def _is_shown(self, event: dict[str, Any]) -> bool:
        """Give the task its name, if it is shown."""
        name = event.get("name")
        if name is None:
            return event.get("uuid") not in self._left_out
        known = lanes_of_tasks().get(name)
        if known is not None and known.is_periodic and not self.shows_periodic:
            self._leave_out(event["uuid"])
            return False
        if known is not None:
            event["name"] = f"{known.lane}/{name}"
        return True

    def _leave_out(self, uuid: str) -> None:
        self._left_out[uuid] = None
        if len(self._left_out) > _MAX_LEFT_OUT:
            self._left_out.popitem(last=False)
