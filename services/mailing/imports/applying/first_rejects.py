"""The first rows of an import that were not added, as its owner is shown them on a page."""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from core.errors import DomainError
from core.refusals.imports import IMPORT_ERRORS_GONE
from models import MemberImport
from services.mailing.imports.applying.verdicts import ADDED_COLUMNS, header_of, stream_rejects
from storage.resources import Resources

MAX_REJECTS_SHOWN = 10
MAX_CELLS_SHOWN = 4
MAX_CELL_CHARACTERS = 60


class RejectedRow(NamedTuple):
    """A row of the file, with the first of its cells, and why it was not added, or not whole."""

    line: str
    cells: Sequence[str]
    code: str
    reason: str


def first_rejects(resources: Resources, task: MemberImport) -> list[RejectedRow]:
    """Some of the rows that were not added so far; none when they are not kept any more."""
    width = len(header_of(task))
    try:
        pieces = stream_rejects(resources, task.id)
    except DomainError as error:
        if error.code != IMPORT_ERRORS_GONE.code:
            raise
        return []
    return list(islice(_rows(pieces, width), MAX_REJECTS_SHOWN))


def _rows(pieces: Iterator[bytes], width: int) -> Iterator[RejectedRow]:
    next(pieces)  # the header
    for piece in pieces:
        lines = csv.reader(io.StringIO(piece.decode(), newline=""))
        while True:
            try:
                found = next(lines, None)
            except csv.Error:
                # A cell of more than 128 KB: the file to download has the rest.
                return
            if found is None:
                break
            line, code, reason = found[width : width + len(ADDED_COLUMNS)]
            cells = [cell[:MAX_CELL_CHARACTERS] for cell in found[:width][:MAX_CELLS_SHOWN]]
            yield RejectedRow(line, cells, code, reason)
