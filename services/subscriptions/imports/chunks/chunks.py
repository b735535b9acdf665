"""Defines the chunks of an import. All rows in a chunk are stored and applied together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.subscriptions.imports.chunks import staging
from services.subscriptions.imports.chunks.judging import MAX_BATCH_ROWS
from services.subscriptions.imports.chunks.verdicts import ALREADY, DUPLICATE, INVALID
from services.subscriptions.imports.judged_rows import DUPLICATE_CODE, JudgedRow

ROWS_PER_CHUNK = 10_000
# A chunk of a file or request is full when it has at least this number of characters. The number
# for requests must not change, because an import that continues skips the chunks that were applied.
MAX_FILE_CHUNK_CHARACTERS = 1_000_000
MAX_REQUEST_CHUNK_CHARACTERS = 5_000_000


class Chunk(NamedTuple):
    """A chunk of rows from an imported file or request.

    Attributes:
        has_opt_outs: whether the chunk must be applied before the chunks without opt-outs.
    """

    number: int
    rows: list[JudgedRow]
    has_opt_outs: bool = False


@dataclass
class PendingChunk:
    max_rows: int
    max_characters: int
    rows: list[JudgedRow] = field(default_factory=list)
    characters: int = 0

    def add(self, rows: Sequence[JudgedRow], characters: int) -> None:
        self.rows += rows
        self.characters += characters

    def is_full(self) -> bool:
        has_no_room = len(self.rows) + min(MAX_BATCH_ROWS, self.max_rows) > self.max_rows
        return has_no_room or self.characters >= self.max_characters

    def take_rows(self) -> list[JudgedRow]:
        rows = self.rows
        self.rows = []
        self.characters = 0
        return rows


@dataclass(frozen=True)
class PreparedChunk:
    """A chunk that is ready to be copied into the database.

    The verdict ``already`` is provisional, because the database determines the final verdict.
    """

    number: int
    rows: list[JudgedRow]
    verdicts: list[str]
    lines: str
    has_extras: bool

    @property
    def first_and_last_line(self) -> tuple[int, int]:
        return self.rows[0].line, self.rows[-1].line


def prepare_chunk(number: int, rows: list[JudgedRow]) -> PreparedChunk:
    verdict_of_code = {None: ALREADY, DUPLICATE_CODE: DUPLICATE}
    verdicts = [verdict_of_code.get(row.code, INVALID) for row in rows]
    has_extras = any(row.extras is not None for row in rows)
    return PreparedChunk(number, rows, verdicts, staging.format_rows(rows), has_extras)
