"""Makes members of records, by the layout of their file."""

import re
import unicodedata
from datetime import UTC, datetime
from functools import lru_cache

from services.mailing.imports.decoding import is_damaged, repair_text
from services.mailing.imports.mapping import header_words
from services.mailing.imports.mapping.columns import ColumnLayout
from services.mailing.imports.mapping.marks import MarkReader
from services.mailing.imports.mapping.rows import MemberRow, RejectedRecord
from services.mailing.spreadsheets import bare_cell

MAX_MEMBER_NAME_CHARACTERS = 200
_OTHER_DATES = ("%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%b %d, %Y", "%d %b %Y")

_IN_BRACKETS = re.compile(r"([^<>]*)<([^<>\s]+)>\Z")
# These join letters in Persian and Indic names, and people in emoji.
_JOINERS = "\u200c\u200d"
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
        singles = [i for i in (email, self._name, self._expiry) if i is not None]
        self._width = max(*singles, *self._parts, *self._marks.indexes, 0) + 1

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
        name = "" if self._name is None else tidy_name(padded[self._name])
        if not name and self._parts:
            parts = [tidy_name(padded[index]) for index in self._parts]
            name = " ".join(filter(None, parts))[:MAX_MEMBER_NAME_CHARACTERS].rstrip()
        if not email.isascii() or email[:1] == "'" or email[-1:] in _ODD_ENDS:
            # The name of ``Jane Doe <jane@example.com>``.
            found = _IN_BRACKETS.match(email) if email.endswith(">") else None
            name = name or (tidy_name(found[1].strip(' "')) if found else "")
            email = _tidy_email(email)
            if not email and not any(cell.strip(BLANKS) for cell in cells):
                return None
            if not email:
                reason = "There is no e-mail address in this row."
                return RejectedRecord(line, "row.no_email", reason, cells)
        marks = self._marks.read(padded)
        if marks.problem:
            return RejectedRecord(line, *marks.problem, cells)
        expiry = None
        if self._expiry is not None and marks.tier != "free" and padded[self._expiry]:
            try:
                expiry = _expiry(padded[self._expiry])
            except ValueError as error:
                return RejectedRecord(line, "row.expiry_unreadable", str(error), cells)
        return MemberRow(line, email, name, marks.tier, expiry, marks.suppression, cells)


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


def tidy_name(name: str) -> str:
    if "'" in name:
        name = bare_cell(name)
    if name.isprintable() and len(name) <= MAX_MEMBER_NAME_CHARACTERS:
        return name.strip()
    shown = (
        c if c.isprintable() or c in _JOINERS else " " if c.isspace() else ""
        for c in name[: 10 * MAX_MEMBER_NAME_CHARACTERS]
    )
    return " ".join("".join(shown).split())[:MAX_MEMBER_NAME_CHARACTERS].rstrip()


def _expiry(cell: str) -> datetime | None:
    """A time with its zone, UTC if it names none; raises ``ValueError``."""
    text = bare_cell(cell).strip()
    if header_words.is_no(text):
        return None
    found = _time(text) if len(text) <= header_words.MAX_WORD_CHARACTERS else None
    if found is None:
        raise ValueError(f"{text[:60]!r} is no date that can be read.")
    return found


@lru_cache(1024)
def _time(text: str) -> datetime | None:
    text = text.removesuffix(" UTC")
    for pattern in (None, *_OTHER_DATES):
        try:
            # A time without a zone gets one below, whatever its format.
            found = datetime.strptime(text, pattern) if pattern else datetime.fromisoformat(text)  # noqa: DTZ007
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            continue
    return None
