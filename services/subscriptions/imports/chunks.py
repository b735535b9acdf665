"""A chunk of an import: rows that are stored as one object and applied in one transaction."""

from dataclasses import dataclass, field

from models import MemberImport
from services.subscriptions import bulk_files
from services.subscriptions.imports import staging
from services.subscriptions.imports.judged_rows import DUPLICATE_CODE, JudgedRow, decode
from services.subscriptions.imports.judging import MAX_BATCH_ROWS
from services.subscriptions.imports.verdicts import ALREADY, DUPLICATE, INVALID
from storage.encryption import unseal
from storage.resources import Resources

ROWS_PER_CHUNK = 10_000
# A chunk of long rows has fewer of them.
MAX_CHUNK_CHARACTERS = 8_000_000


@dataclass
class PendingChunk:
    """A chunk that is still being filled with rows, and isn't stored yet."""

    rows: list[JudgedRow] = field(default_factory=list)
    characters: int = 0

    def is_full(self) -> bool:
        """Return whether the chunk could exceed its maximum size with the next batch of rows."""
        has_no_room = len(self.rows) + min(MAX_BATCH_ROWS, ROWS_PER_CHUNK) > ROWS_PER_CHUNK
        return has_no_room or self.characters >= MAX_CHUNK_CHARACTERS


@dataclass(frozen=True)
class PreparedChunk:
    """A chunk that is ready to be copied into the database.

    In ``verdicts``, ``already`` is provisional, because the database makes the final decision about
    these rows. ``lines`` holds these rows in COPY format.
    """

    number: int
    rows: list[JudgedRow]
    verdicts: list[str]
    lines: str
    has_extras: bool


def chunk_key(prefix: str, number: int) -> str:
    """The key of one chunk among the objects of its import."""
    return f"{prefix}/chunks/{number:06}"


def fetch(resources: Resources, task: MemberImport, number: int) -> PreparedChunk:
    """A stored chunk, ready to be applied."""
    name = chunk_key(task.object_prefix, number)
    key = bulk_files.data_key(resources, task)
    return prepare(number, decode(unseal(resources.objects.get(name), key, name)))


def prepare(number: int, rows: list[JudgedRow]) -> PreparedChunk:
    by_code = {None: ALREADY, DUPLICATE_CODE: DUPLICATE}
    found = [by_code.get(row.code, INVALID) for row in rows]
    has_extras = any(row.extras is not None for row in rows)
    return PreparedChunk(number, rows, found, staging.copy_lines(rows), has_extras)


def lines_of(chunk: PreparedChunk) -> tuple[int, int]:
    """The lines of the file on which the chunk's first and last row begin."""
    return chunk.rows[0].line, chunk.rows[-1].line
