import re
from dataclasses import dataclass

# More digits than any size has need not be read as a number.
_RANGE = re.compile(r"bytes=\s*([0-9]{0,30})-([0-9]{0,30})\s*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ByteRange:
    start: int
    end: int  # of the last byte, as HTTP counts

    @property
    def length(self) -> int:
        return self.end - self.start + 1


class RangeNotSatisfiable(Exception):
    """A range that begins behind the end."""


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """The one range asked for (RFC 9110, 14.2), ``None`` for the whole.

    What isn't understood, several ranges included, is ignored, as the RFC allows. Raises
    ``RangeNotSatisfiable``.
    """
    match = _RANGE.match(header) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, end = max(size - int(last), 0), size - 1
        satisfiable = int(last) > 0
    else:
        start, end = int(first), min(int(last or size - 1), size - 1)
        if last and int(last) < start:
            return None
        satisfiable = start < size
    if not satisfiable:
        raise RangeNotSatisfiable
    return ByteRange(start, end)
