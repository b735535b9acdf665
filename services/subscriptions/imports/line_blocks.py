"""Cuts the decoded text of a file into blocks of whole lines."""

import io
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import Final

from services.subscriptions.imports.rows import RejectedRecord

# A line of the maximum length takes a few megabytes of memory, because the line is copied, and a
# character can take four bytes. A line that is too long is discarded while it is being read, so
# that the whole line is never in memory. A line about a real member has far fewer than
# ``MAX_LINE_CHARACTERS`` characters.
MAX_LINE_CHARACTERS = 256 * 1024

_LINE_END = re.compile(r"\r\n?|\n")


class SkippedLine(Enum):
    """The placeholder for a line that was skipped because the line is too long."""

    LINE = "line"


SKIPPED: Final = SkippedLine.LINE

Block = str | SkippedLine


def cut_blocks(texts: Iterable[str], limit: int = MAX_LINE_CHARACTERS) -> Iterator[Block]:
    """Yield the text of a file in blocks of whole lines.

    Each line in a block ends with a line break, except possibly the last line of the file. If a
    line has more than ``limit`` characters, ``SKIPPED`` is yielded, and the line is skipped.
    """
    # The text of the last line, which isn't complete, and the number of characters in the text. The
    # text of the incomplete line is discarded as soon as the line is too long.
    line_parts: list[str] = []
    characters = 0
    carriage_return = ""
    for new_text in texts:
        # If a text ends with a CR, process the CR together with the next text, which may begin with
        # an LF.
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
    """Return the lines of a block, including the line break (CR, LF or CRLF) of each line."""
    return io.StringIO(block, newline="")


def reject_long_line(line: int) -> RejectedRecord:
    reason = f"The line is longer than {MAX_LINE_CHARACTERS:,} characters."
    return RejectedRecord(line, "row.too_long", reason, ())


def _skip_long_lines(text: str, limit: int) -> Iterator[Block]:
    """Yield ``text``, with ``SKIPPED`` in the place of each line that is too long.

    A text that the decoder returns at once may contain a whole line that is too long.
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
