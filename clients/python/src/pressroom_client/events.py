"""Reads server-sent events in the format of the HTML standard."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerEvent:
    """A server-sent event.

    If the stream sent no id for an event, ``id`` is the id of the previous event.
    """

    id: str
    event: str
    data: str


class EventParser:
    """Collects the lines of a stream until an event is complete."""

    def __init__(self) -> None:
        self._last_id = ""
        self._event = ""
        self._data: list[str] = []

    def read_line(self, line: str) -> ServerEvent | None:
        """Return the event that ends with this line, or ``None``."""
        if not line:
            return self._finish_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id":
            self._last_id = value
        return None

    def _finish_event(self) -> ServerEvent | None:
        event = self._event or "message"
        data = self._data
        self._event = ""
        self._data = []
        return ServerEvent(self._last_id, event, "\n".join(data)) if data else None


def parse_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Yield the server-sent events in a stream of lines.

    If the stream ends within an event, the incomplete event is ignored.
    """
    parser = EventParser()
    for line in lines:
        event = parser.read_line(line)
        if event:
            yield event
