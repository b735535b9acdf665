import re
from dataclasses import dataclass

# No size has more than 30 digits: such a range is ignored.
_RANGE = re.compile(r"bytes=\s*([0-9]{0,30})-([0-9]{0,30})\s*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ByteRange:
    start: int
    end: int  # of the last byte: HTTP ranges include their end

    @property
    def length(self) -> int:
        return self.end - self.start + 1


class RangeNotSatisfiable(Exception):
    """The range begins after the end of the file."""


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """The range that was asked for (RFC 9110, 14.2); ``None`` for the whole file.

    A header that asks for several ranges, or is malformed, is ignored, as the RFC allows. Raises
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
