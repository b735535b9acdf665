"""Makes members of records, by the layout of their file."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime

from core.languages.shown_lines import JOINERS
from services.mailing.imports.decoding import is_damaged, repair_text
from services.mailing.imports.mapping.columns import ColumnLayout
from services.mailing.imports.mapping.dates import read_moment
from services.mailing.imports.mapping.marks import MarkReader, MemberMarks
from services.mailing.imports.mapping.row_extras import AttributeReader
from services.mailing.imports.mapping.rows import MemberRow, RejectedRecord
from services.mailing.spreadsheets import bare_cell

MAX_MEMBER_NAME_CHARACTERS = 200

_IN_BRACKETS = re.compile(r"([^<>]*)<([^<>\s]+)>\Z")
# The ends of a cell that is empty, has brackets, or has the old mark of a file's end.
_ODD_ENDS = ("", ">", "\x1a")
BLANKS = " \t\r\n\x1a\ufeff\xa0"


class RowMapper:
    """Makes the rows of files of one layout, which has a column of addresses."""

    def __init__(self, layout: ColumnLayout, email: int) -> None:
        self._email = email
        self._name = layout.name
        self._parts = [i for i in (layout.first_name, layout.last_name) if i is not None]
        self._expiry = layout.paid_expiry
        self._marks = MarkReader(layout)
        attributes = AttributeReader(layout)
        # Most files have none.
        self._attributes = attributes if attributes.indexes else None
        singles = [i for i in (email, self._name, self._expiry) if i is not None]
        read = (*singles, *self._parts, *self._marks.indexes, *attributes.indexes)
        self._width = max(*read, 0) + 1

    def make(
        self, line: int, cells: list[str], *, damaged: bool = False
    ) -> MemberRow | RejectedRecord | None:
        """A member, a rejected record, or ``None`` for a record of blanks alone.

        ``damaged``: some byte of the file up to here could not be read exactly.
        """
        if damaged and any(map(is_damaged, cells)):
            has_damaged_email = any(map(is_damaged, cells[self._email : self._email + 1]))
            cells = [repair_text(cell) for cell in cells]
            if has_damaged_email:
                reason = "The address has bytes that are not in the encoding."
                return RejectedRecord(line, "encoding.invalid", reason, cells)
        short = self._width - len(cells)
        padded = [*cells, *[""] * short] if short > 0 else cells
        email = padded[self._email].strip()
        name = "" if self._name is None else _name_in(padded[self._name])
        if not name and self._parts:
            parts = [_name_in(padded[index]) for index in self._parts]
            name = " ".join(filter(None, parts))[:MAX_MEMBER_NAME_CHARACTERS].rstrip()
        if not email.isascii() or email[:1] == "'" or email[-1:] in _ODD_ENDS:
            # The name of ``Jane Doe <jane@example.com>``.
            found = _IN_BRACKETS.match(email) if email.endswith(">") else None
            name = name or (_name_in(found[1].strip(' "')) if found else "")
            email = _tidy_email(email)
            if not email and not any(cell.strip(BLANKS) for cell in cells):
                return None
            if not email:
                reason = "There is no e-mail address in this row."
                return RejectedRecord(line, "row.no_email", reason, cells)
        marks = self._marks.read(padded)
        if marks.problem:
            return RejectedRecord(line, *marks.problem, cells)
        try:
            expiry = self._expiry_of(padded, marks)
        except ValueError as error:
            return RejectedRecord(line, "row.expiry_unreadable", str(error), cells)
        extras = self._attributes.read(padded) if self._attributes else None
        return MemberRow(line, email, name, marks.tier, expiry, marks.suppression, cells, extras)

    def _expiry_of(self, cells: Sequence[str], marks: MemberMarks) -> datetime | None:
        if self._expiry is None or marks.tier == "free" or not cells[self._expiry]:
            return None
        return read_moment(cells[self._expiry])


def _tidy_email(email: str) -> str:
    """The address without what copying leaves around it: brackets and invisible characters."""
    email = bare_cell(email).strip(BLANKS)
    if found := _IN_BRACKETS.match(email):
        email = found[2]
    if email.isascii():
        return email
    start, end = 0, len(email)
    while start < end and unicodedata.category(email[start]) in {"Cf", "Zs"}:
        start += 1
    while end > start and unicodedata.category(email[end - 1]) in {"Cf", "Zs"}:
        end -= 1
    return email[start:end]


def _name_in(cell: str) -> str:
    """The name in a cell of a file, which may be guarded; a name that comes by itself never is."""
    return tidy_name(bare_cell(cell) if "'" in cell else cell)


def tidy_name(name: str) -> str:
    if name.isprintable() and len(name) <= MAX_MEMBER_NAME_CHARACTERS:
        return name.strip()
    shown = (
        c if c.isprintable() or c in JOINERS else " " if c.isspace() else ""
        for c in name[: 10 * MAX_MEMBER_NAME_CHARACTERS]
    )
    return " ".join("".join(shown).split())[:MAX_MEMBER_NAME_CHARACTERS].rstrip()
