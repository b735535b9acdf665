"""Server-sent events, as the HTML standard defines them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerEvent:
    """An event of a stream. ``id`` is that of the last event that had one."""

    id: str
    event: str
    data: str


def server_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """The events of a stream. An event that the stream's end cuts off is left out."""
    last_id, event = "", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(last_id, event or "message", "\n".join(data))
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            last_id = value
