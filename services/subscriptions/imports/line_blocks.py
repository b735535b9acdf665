"""Cuts the text of a file into blocks of whole lines."""

import io
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import Final

from services.subscriptions.imports.rows import RejectedRecord

# A line with ``MAX_LINE_CHARACTERS`` characters takes a few megabytes of memory, because the line
# is copied, and a character can take four bytes. A line with more than ``MAX_LINE_CHARACTERS``
# characters is skipped while it is read, so that it is never in memory as a whole. The line of a
# real member is far shorter than ``MAX_LINE_CHARACTERS``.
MAX_LINE_CHARACTERS = 256 * 1024

_LINE_END = re.compile(r"\r\n?|\n")


class SkippedLine(Enum):
    """The placeholder for a line that is longer than the limit."""

    LINE = "line"


SKIPPED: Final = SkippedLine.LINE

Block = str | SkippedLine


def cut_blocks(texts: Iterable[str], limit: int = MAX_LINE_CHARACTERS) -> Iterator[Block]:
    """Yield the text of a file in blocks of whole lines.

    Only the last line of the file may lack a line end. ``SKIPPED`` takes the place of each line
    that is longer than ``limit`` characters.
    """
    # The text of the incomplete last line, and the length of the text. If the incomplete line is
    # already too long, its text is discarded.
    line_parts: list[str] = []
    characters = 0
    carriage_return = ""
    for new_text in texts:
        # If the decoded text ends with a CR, process the CR with the next text, because an LF may
        # follow.
        text = carriage_return + new_text
        carriage_return = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        line_end = _LINE_END.search(text)
        if line_end and characters > limit:
            yield SKIPPED
            text = text[line_end.end() :]
            characters = 0
        cut = max(text.rfind("\n"), text.rfind("\r")) + 1
        if cut:
            yield from _skip_long_lines("".join(line_parts) + text[:cut], limit)
            line_parts = []
            characters = 0
        line_parts.append(text[cut:])
        characters += len(text) - cut
        if characters > limit:
            line_parts.clear()
    if characters > limit:
        yield SKIPPED
    elif last_line := "".join(line_parts) + carriage_return:
        yield last_line


def split_lines(block: str) -> Iterable[str]:
    """Return the physical lines of a block, each with its line end CR, LF or CRLF."""
    return io.StringIO(block, newline="")


def reject_long_line(line: int) -> RejectedRecord:
    reason = f"The line is longer than {MAX_LINE_CHARACTERS:,} characters."
    return RejectedRecord(line, "row.too_long", reason, ())


def _skip_long_lines(text: str, limit: int) -> Iterator[Block]:
    """Yield the text of whole lines, but ``SKIPPED`` for each line that is too long.

    The decoder may return a text that contains whole lines that are too long.
    """
    if len(text) <= limit:
        yield text
        return
    for is_long, group in groupby(split_lines(text), lambda line: len(line.rstrip("\r\n")) > limit):
        lines = list(group)
        if is_long:
            yield from [SKIPPED] * len(lines)
        else:
            yield "".join(lines)
