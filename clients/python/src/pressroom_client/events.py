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


def parse_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Yield the server-sent events in a stream of lines.

    If the stream ends within an event, the incomplete event is ignored.
    """
    last_id = ""
    event = ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(last_id, event or "message", "\n".join(data))
            event = ""
            data = []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            last_id = value
