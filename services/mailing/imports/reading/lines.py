"""Cuts text into blocks of whole lines, and skips lines that are too long."""

import io
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

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
    cutter = _Cutter(limit)
    for text in texts:
        yield from cutter.add(text)
    yield from cutter.finish()


class _Cutter:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun: list[str] = []
        self._begun_characters = 0
        self._skipping = False
        self._return_pending = False

    def add(self, text: str) -> Iterator[Block]:
        # A CR at the end may be the first half of a CRLF, so it waits for the next text.
        if self._return_pending:
            text = "\r" + text
        self._return_pending = text.endswith("\r")
        if self._return_pending:
            text = text[:-1]
        first = _LINE_END.search(text)
        if first is None:
            self._grow(text)
            return
        if self._skipping:
            yield SKIPPED
            self._reset()
            text = text[first.end() :]
        cut = max(text.rfind("\n"), text.rfind("\r")) + 1
        if cut:
            yield from self._checked("".join(self._begun) + text[:cut])
            self._reset()
        self._grow(text[cut:])

    def finish(self) -> Iterator[Block]:
        end = "\r" if self._return_pending else ""
        if self._skipping:
            yield SKIPPED
        elif last := "".join(self._begun) + end:
            yield last

    def _reset(self) -> None:
        self._begun, self._begun_characters, self._skipping = [], 0, False

    def _grow(self, text: str) -> None:
        if self._skipping or not text:
            return
        self._begun.append(text)
        self._begun_characters += len(text)
        if self._begun_characters > self._limit:
            self._reset()
            self._skipping = True

    def _checked(self, whole: str) -> Iterator[Block]:
        """``whole``, without lines that are too long, which one large text may contain."""
        if len(whole) <= self._limit:
            yield whole
            return
        kept = []
        for line in split_lines(whole):
            if len(line.rstrip("\r\n")) <= self._limit:
                kept.append(line)
                continue
            if kept:
                yield "".join(kept)
                kept = []
            yield SKIPPED
        if kept:
            yield "".join(kept)
