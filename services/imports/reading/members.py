"""Cells to members: what a record says about its person, by the layout of its file."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from services.imports.reading import products, words
from services.imports.reading.columns import Layout
from services.imports.reading.encoding import is_damaged, mended
from services.imports.reading.rows import Problem, Row, Standing

MAX_NAME_CHARACTERS = 200

# Spreadsheets run cells that begin so; our exports put an apostrophe before them.
_GUARDED = re.compile(r"'[=+\-@\t\r]")
_IN_BRACKETS = re.compile(r"([^<>]*)<([^<>\s]+)>\Z")
# Joins letters in Persian and Indic names and people in emoji.
_JOINERS = "\u200c\u200d"
_WORST_FIRST = (Standing.COMPLAINED, Standing.BOUNCED, Standing.CLEANED, Standing.UNSUBSCRIBED)
_TIERS = ("free", "silver", "gold")
BLANKS = " \t\r\n\x1a\ufeff\xa0"


class Unusable(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Maker:
    """Makes the rows of a file of one layout, which has a column of addresses."""

    def __init__(self, layout: Layout, email: int) -> None:
        self._layout = layout
        self._email = email
        self._name = layout.name
        self._parts = [i for i in (layout.first_name, layout.last_name) if i is not None]
        marks = (layout.status, layout.left_at, layout.subscribed, layout.deleted)
        self._has_marks = any(marks)
        self._has_tiers = bool(layout.tier or layout.paid or layout.active_subscription is not None)

    def make(self, line: int, cells: list[str], *, damaged: bool = False) -> Row | Problem | None:
        """A member, a problem, or None for a record of nothing but blanks.

        ``damaged``: some byte of the file up to here could not be read exactly.
        """
        try:
            if damaged and any(map(is_damaged, cells)):
                cells = self._mended(cells)
            return self._row(line, cells)
        except Unusable as error:
            return Problem(line, error.code, error.reason, cells)

    def _row(self, line: int, cells: list[str]) -> Row | None:
        email = _cell(cells, self._email).strip()
        if not email.isascii() or email[:1] == "'" or email[-1:] in ("", ">", "\x1a"):
            email = _tidy_email(email)
            if not email:
                _refuse_unless_blank(cells)
                return None
        name = self._named(cells)
        standing = self._standing(cells) if self._has_marks else Standing.WANTED
        tier = self._tier(cells) if self._has_tiers else None
        expiry = None
        if self._layout.paid_expiry is not None and tier != "free":
            expiry = _expiry(_cell(cells, self._layout.paid_expiry))
        return Row(line, email, name, tier, expiry, standing, cells)

    def _mended(self, cells: list[str]) -> list[str]:
        if is_damaged(_cell(cells, self._email)):
            raise Unusable(
                "encoding.invalid", "The address has bytes that are not in the encoding."
            )
        return [mended(cell) for cell in cells]

    def _named(self, cells: list[str]) -> str:
        name = "" if self._name is None else tidy_name(_cell(cells, self._name))
        if name or not self._parts:
            return name or self._before_brackets(cells)
        parts = (tidy_name(_cell(cells, index)) for index in self._parts)
        return " ".join(filter(None, parts))[:MAX_NAME_CHARACTERS].rstrip()

    def _before_brackets(self, cells: list[str]) -> str:
        """The name of ``Jane Doe <jane@example.com>``, where no column has it."""
        email = _cell(cells, self._email).strip()
        found = _IN_BRACKETS.match(email) if email.endswith(">") else None
        return tidy_name(found[1].strip(' "')) if found else ""

    def _standing(self, cells: list[str]) -> Standing:
        found = {*self._said(cells)}
        for standing in _WORST_FIRST:
            if standing in found:
                return standing
        if words.NOT_SUBSCRIBED in found:
            raise Unusable(
                "row.not_subscribed", "The file says that this person is not subscribed."
            )
        return Standing.WANTED

    def _said(self, cells: list[str]) -> list[Standing | None]:
        layout = self._layout
        found = [standing for i, standing in layout.left_at if not words.is_no(_cell(cells, i))]
        said: list[Standing | None] = [*found]
        for index in layout.status:
            try:
                said.append(products.standing(layout.product, _unguarded(_cell(cells, index))))
            except products.UnknownStanding as error:
                reason = f"The status {str(error)[:60]!r} is not known."
                raise Unusable("row.status_unknown", reason) from None
        consents = (_cell(cells, index).strip() for index in layout.subscribed)
        if any(cell and words.is_no(cell) for cell in consents):
            said.append(Standing.UNSUBSCRIBED)
        if any(not words.is_no(_cell(cells, index)) for index in layout.deleted):
            said.append(words.NOT_SUBSCRIBED)
        return said

    def _tier(self, cells: list[str]) -> str | None:
        layout = self._layout
        found = {self._tier_word(_cell(cells, index)) for index in layout.tier}
        found |= {"silver" for i in layout.paid if not words.is_no(_cell(cells, i))}
        if layout.active_subscription is not None:
            if words.is_no(_cell(cells, layout.active_subscription)):
                return "free"
            found.add("silver")
        return max(filter(None, found), key=_TIERS.index, default=None)

    def _tier_word(self, cell: str) -> str | None:
        found = words.TIERS.get(words.key(cell))
        # Ghost lists the names of paid tiers, whatever the owner called them.
        return "silver" if found is None and cell.strip() and self._is_ghost() else found

    def _is_ghost(self) -> bool:
        return self._layout.product == "ghost"


def _cell(cells: Sequence[str], index: int) -> str:
    return cells[index] if index < len(cells) else ""


def _unguarded(cell: str) -> str:
    return cell[1:] if _GUARDED.match(cell) else cell


def _refuse_unless_blank(cells: Sequence[str]) -> None:
    if any(cell.strip(BLANKS) for cell in cells):
        raise Unusable("row.no_email", "There is no e-mail address in this row.")


def _tidy_email(email: str) -> str:
    """Without what copying leaves around an address: brackets, marks that nobody sees."""
    email = _unguarded(email).strip(BLANKS)
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
    if name.isprintable() and len(name) <= MAX_NAME_CHARACTERS and name[:1] != "'":
        return name.strip()
    shown = (
        c if c.isprintable() or c in _JOINERS else " " if c.isspace() else ""
        for c in _unguarded(name)[: 10 * MAX_NAME_CHARACTERS]
    )
    return " ".join("".join(shown).split())[:MAX_NAME_CHARACTERS].rstrip()


def _expiry(cell: str) -> datetime | None:
    """A time with its zone, UTC where it has none; raises ``row.expiry_unreadable``."""
    text = _unguarded(cell).strip()
    if words.is_no(text):
        return None
    found = _time(text) if len(text) <= words.LONGEST_WORD else None
    if found is None:
        raise Unusable("row.expiry_unreadable", f"{text[:60]!r} is no date that can be read.")
    return found


@lru_cache(1024)
def _time(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, *_OTHER_DATES):
        try:
            found = read(text.removesuffix(" UTC"))
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            continue
    return None


def _by_format(pattern: str) -> Callable[[str], datetime]:
    # The zone is given by the caller, for all formats alike.
    return lambda text: datetime.strptime(text, pattern)  # noqa: DTZ007


_OTHER_DATES = [_by_format(p) for p in ("%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%b %d, %Y", "%d %b %Y")]
