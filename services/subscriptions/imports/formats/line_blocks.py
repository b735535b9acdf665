"""Cuts the decoded text of a file into blocks of whole lines."""

import io
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import Final

from services.subscriptions.imports.rows import RejectedRecord

# The maximum length of a line, which is far longer than a line about a real member. A line of the
# maximum length takes a few megabytes of memory, because the line is copied and a character can
# take four bytes. Lines that exceed the maximum length are discarded while they are being read.
MAX_LINE_CHARACTERS = 256 * 1024

_LINE_END = re.compile(r"\r\n?|\n")


class SkippedLine(Enum):
    LINE = "line"


SKIPPED: Final = SkippedLine.LINE

Block = str | SkippedLine


def cut_blocks(texts: Iterable[str], limit: int = MAX_LINE_CHARACTERS) -> Iterator[Block]:
    """Yield the text of a file in blocks of whole lines.

    Each line ends with a line break, except possibly the last line of the file. If a line has more
    than ``limit`` characters, ``SKIPPED`` is yielded instead of the line.
    """
    # The parts of the incomplete last line, and the number of characters in the line. The parts of
    # an overlong line are discarded immediately.
    line_parts: list[str] = []
    characters = 0
    carriage_return = ""
    for new_text in texts:
        # Process a CR at the end of the text together with the next text, which may begin with an
        # LF.
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
    return io.StringIO(block, newline="")


def reject_long_line(line: int) -> RejectedRecord:
    reason = f"The line is longer than {MAX_LINE_CHARACTERS:,} characters."
    return RejectedRecord(line, "row.too_long", reason, ())


def _skip_long_lines(text: str, limit: int) -> Iterator[Block]:
    """Yield ``text`` with ``SKIPPED`` in place of lines that are too long.

    The decoder may return the whole text of an overlong line at once.
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
