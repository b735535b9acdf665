"""Parses a multipart body part by part while the body arrives."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import Request
from python_multipart import MultipartParser
from python_multipart.multipart import parse_options_header

from api.bodies.part_headers import PartHead, PartHeaders

MULTIPART = "multipart/form-data"


@dataclass(frozen=True)
class PartEnd:
    pass


# The multipart parser reports the headers of a part, pieces of its content, and its end.
PartEvent = PartHead | bytearray | PartEnd


def read_boundary(request: Request) -> bytes | None:
    """Return ``None`` unless the body is a multipart form."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    return options.get(b"boundary", b"") if kind == MULTIPART.encode() else None


class MultipartReader:
    """A parser for one multipart body.

    Attributes:
        is_complete: whether the closing boundary has arrived.
    """

    def __init__(self, boundary: bytes) -> None:
        """Raise ``FormParserError`` for an invalid boundary."""
        self.is_complete = False
        self._events: list[PartEvent] = []
        callbacks: dict[str, Callable[..., None]] = {
            **PartHeaders(self._events.append).callbacks(),
            "on_part_data": self._add_content,
            "on_part_end": lambda: self._events.append(PartEnd()),
            "on_end": self._complete,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]

    async def read(self, body: AsyncIterator[bytes]) -> AsyncIterator[list[PartEvent]]:
        """Yield the events of each chunk. Raises ``FormParserError`` for a malformed body."""
        async for chunk in body:
            self._parser.write(chunk)
            yield [*self._events]
            self._events.clear()

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        last_event = self._events[-1] if self._events else None
        # Join adjacent pieces of content to save memory, because the parser splits the content at
        # line breaks.
        if isinstance(last_event, bytearray):
            last_event += data[start:end]
        else:
            self._events.append(bytearray(data[start:end]))

    def _complete(self) -> None:
        self.is_complete = True
