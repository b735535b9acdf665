"""Text to blocks of whole lines, none of them longer than allowed."""

import io
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

# Far more than any member needs, and a few megabytes with its copies where characters take four
# bytes; what is longer is skipped as it comes, never held.
MAX_LINE_CHARACTERS = 256 * 1024

_LINE_END = re.compile(r"\r\n?|\n")


class SkippedLine(Enum):
    """Stands for one line that was too long."""

    LINE = "line"


SKIPPED: Final = SkippedLine.LINE
Block = str | SkippedLine


def split_lines(block: str) -> Iterable[str]:
    """The physical lines of a block, each with its end: CR, LF or CRLF and nothing else."""
    return io.StringIO(block, newline="")


def blocks(texts: Iterable[str], limit: int = MAX_LINE_CHARACTERS) -> Iterator[Block]:
    """``texts`` cut after the ends of lines; ``SKIPPED`` where a line is longer than ``limit``."""
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

    def add(self, added: str) -> Iterator[Block]:
        text = self._without_half_an_end(added)
        first = _LINE_END.search(text)
        if first is None:
            self._grow(text)
            return
        if self._skipping:
            yield SKIPPED
            self._begin("")
            text = text[first.end() :]
        cut = max(text.rfind("\n"), text.rfind("\r")) + 1
        if cut:
            yield from self._checked("".join(self._begun) + text[:cut])
            self._begin("")
        self._grow(text[cut:])

    def finish(self) -> Iterator[Block]:
        end = "\r" if self._return_pending else ""
        if self._skipping:
            yield SKIPPED
        elif last := "".join(self._begun) + end:
            yield last

    def _without_half_an_end(self, text: str) -> str:
        """A CR at the end may be half of a CRLF: it waits for what follows."""
        if self._return_pending:
            text = "\r" + text
        self._return_pending = text.endswith("\r")
        return text[:-1] if self._return_pending else text

    def _begin(self, text: str) -> None:
        self._begun, self._begun_characters, self._skipping = [], 0, False
        if text:
            self._grow(text)

    def _grow(self, text: str) -> None:
        if self._skipping or not text:
            return
        self._begun.append(text)
        self._begun_characters += len(text)
        if self._begun_characters > self._limit:
            self._begin("")
            self._skipping = True

    def _checked(self, whole: str) -> Iterator[Block]:
        """``whole``, with a line inside that is too long taken out where pieces are that large."""
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
