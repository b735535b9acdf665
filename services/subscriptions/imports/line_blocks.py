"""Cuts the text of a file into blocks of whole lines."""

import io
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import Final

from services.subscriptions.imports.rows import RejectedRecord

# Far more than any member needs. With its copies, and four bytes a character, a line takes a few
# megabytes. A longer line is skipped while it arrives, and never held.
MAX_LINE_CHARACTERS = 256 * 1024

_LINE_END = re.compile(r"\r\n?|\n")


class SkippedLine(Enum):
    """The mark for one line that was too long."""

    LINE = "line"


SKIPPED: Final = SkippedLine.LINE

Block = str | SkippedLine


def split_lines(block: str) -> Iterable[str]:
    """The physical lines of a block, each with its end. Only CR, LF and CRLF end a line."""
    return io.StringIO(block, newline="")


def blocks(texts: Iterable[str], limit: int = MAX_LINE_CHARACTERS) -> Iterator[Block]:
    """``texts``, cut after ends of lines; ``SKIPPED`` in place of a line longer than ``limit``."""
    # The line that has begun: its text, unless it is too long already, and its length.
    begun: list[str] = []
    characters = 0
    end = ""
    for more in texts:
        # A CR at the end may be the first half of a CRLF, so it waits for the next text.
        text = end + more
        end = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        first = _LINE_END.search(text)
        if first and characters > limit:
            yield SKIPPED
            text, characters = text[first.end() :], 0
        cut = max(text.rfind("\n"), text.rfind("\r")) + 1
        if cut:
            yield from _checked("".join(begun) + text[:cut], limit)
            begun, characters = [], 0
        begun.append(text[cut:])
        characters += len(text) - cut
        if characters > limit:
            begun.clear()
    if characters > limit:
        yield SKIPPED
    elif last := "".join(begun) + end:
        yield last


def _checked(whole: str, limit: int) -> Iterator[Block]:
    """``whole``, without lines that are too long, which one large text may contain."""
    if len(whole) <= limit:
        yield whole
        return
    for is_long, group in groupby(
        split_lines(whole), lambda line: len(line.rstrip("\r\n")) > limit
    ):
        lines = list(group)
        if is_long:
            yield from [SKIPPED] * len(lines)
        else:
            yield "".join(lines)


def too_long(line: int) -> RejectedRecord:
    reason = f"The line is longer than {MAX_LINE_CHARACTERS:,} characters."
    return RejectedRecord(line, "row.too_long", reason, ())
