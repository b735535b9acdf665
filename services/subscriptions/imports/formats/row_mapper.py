"""Converts the records of a file into rows."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter

from core.languages.shown_lines import strip_invisible
from services.subscriptions.formula_guard import unguard_cell
from services.subscriptions.imports.columns.column_forms import ColumnForms
from services.subscriptions.imports.columns.column_layout import (
    MAX_COLUMN_NAME_CHARACTERS_SHOWN,
    ColumnLayout,
)
from services.subscriptions.imports.columns.column_vocabulary import TIERS, is_no
from services.subscriptions.imports.columns.consent_cells import STATUS_UNKNOWN
from services.subscriptions.imports.columns.consent_interpreter import ConsentReader
from services.subscriptions.imports.columns.known_words import MAX_WORD_CHARACTERS, normalise_word
from services.subscriptions.imports.columns.member_names import NameReader, tidy_cell
from services.subscriptions.imports.columns.row_extras import RowExtrasReader
from services.subscriptions.imports.formats.decoded_text import is_damaged, repair_text
from services.subscriptions.imports.formats.workbooks.cell_text import UNCALCULATED
from services.subscriptions.imports.rows import (
    ABSENT,
    NO_EXTRAS,
    OPT_OUTS,
    AbsentCell,
    MemberRow,
    OmittedValue,
    RejectedRecord,
    RowProblem,
    SuppressionStatus,
)

_IN_BRACKETS = re.compile(r"([^<>]*)<([^<>\s]+)>\Z")
_MAILTO = "mailto:"
# An address cell needs extra parsing if it ends with one of these characters. The empty string
# stands for an empty cell. Some old programs end files with "\x1a".
_ODD_ENDS = ("", ">", "\x1a")
_NO_ERRORS: Mapping[int, str] = {}
# The tiers of members, from lowest to highest.
_TIERS = ("free", "silver", "gold")


class RowMapper:
    def __init__(
        self, layout: ColumnLayout, email: int, forms: ColumnForms, consent: ConsentReader
    ) -> None:
        self._layout = layout
        self._email = email
        self._forms = forms
        self._names = NameReader(layout)
        self._expiry = layout.find_first_column("paid_expiry")
        self._consent = consent
        self._tiers = _TierReader(layout)
        self._has_tiers = bool(self._tiers.indexes)
        extras = RowExtrasReader(layout, forms)
        # Don't read fields, tags, join dates and consent from the rows if the file has no columns
        # for them.
        self._extras = extras if extras.indexes else None
        single_columns = [index for index in (email, self._expiry) if index is not None]
        columns = (
            *(*single_columns, *self._names.indexes, *consent.indexes),
            *(*self._tiers.indexes, *extras.indexes),
        )
        self._width = max(*columns, 0) + 1

    def map_record(
        self,
        line: int,
        cells: list[str],
        *,
        damaged: bool = False,
        errors: Mapping[int, str] = _NO_ERRORS,
    ) -> MemberRow | RejectedRecord | None:
        """Convert a record into a row or a ``RejectedRecord``. Return ``None`` for a blank record.

        An error in a consent column may hide an opt-out, so the row isn't imported. An error in the
        end of a paid tier rejects the row, because the tier would have no end.

        Args:
            errors: maps the indexes of unreadable cells to their content, such as ``the error
                #N/A``.
        """
        if damaged and any(map(is_damaged, cells)):
            has_damaged_email = any(map(is_damaged, cells[self._email : self._email + 1]))
            cells = [repair_text(cell) for cell in cells]
            if has_damaged_email:
                reason = "The address contains bytes that are invalid in the file's encoding."
                return RejectedRecord(line, "encoding.invalid", reason, cells)
        missing_cells = self._width - len(cells)
        padded = [*cells, *[ABSENT] * missing_cells] if missing_cells > 0 else cells
        email = padded[self._email].strip()
        name = self._names.read(padded)
        is_plain = email.isascii() and email[:1] != "'" and ":" not in email
        if not is_plain or email[-1:] in _ODD_ENDS:
            email, name_in_cell = _split_address(email)
            name = name or name_in_cell
            if not email and not any(strip_invisible(cell) for cell in cells):
                return None
            if not email:
                reason = "The row has no e-mail address."
                return RejectedRecord(line, "row.no_email", reason, cells)
        return self._map_row(line, email, name, cells, padded, errors=errors)

    def is_consent_column(self, index: int) -> bool:
        return index in self._consent.indexes

    def add_errors(
        self, outcome: MemberRow | RejectedRecord | None, line: int, errors: Mapping[int, str]
    ) -> MemberRow | RejectedRecord | None:
        """Report the unreadable cells in a record of a workbook.

        An error in a column without a role is ignored. A formula that was never calculated isn't,
        because people see the formula's value as soon as they open the workbook.
        """
        if error := errors.get(self._email):
            reason = f"The cell with the e-mail address contains {error}."
            cells = () if outcome is None else outcome.cells
            return RejectedRecord(line, "row.no_email", reason, cells)
        if not isinstance(outcome, MemberRow):
            return outcome
        header = self._layout.header
        used_columns = self._layout.describe_roles()
        values = [
            OmittedValue(self._shorten_name(index), f"the cell contains {error}")
            for index, error in sorted(errors.items())
            if index in used_columns or (error == UNCALCULATED and index < len(header))
        ]
        if not values:
            return outcome
        extras = outcome.extras or NO_EXTRAS
        return outcome._replace(extras=extras._replace(left_out=[*extras.left_out, *values]))

    def _find_consent_error(self, errors: Mapping[int, str]) -> RowProblem | None:
        index = next((each for each in self._layout.consent if each in errors), None)
        if index is None:
            return None
        return RowProblem(STATUS_UNKNOWN, self._describe_error(index, errors))

    def _describe_error(self, index: int, errors: Mapping[int, str]) -> str:
        name = self._shorten_name(index)
        return f"The cell in the column {name!r} contains {errors[index]}."

    def _shorten_name(self, index: int) -> str:
        return self._layout.header[index].strip()[:MAX_COLUMN_NAME_CHARACTERS_SHOWN]

    def _map_row(
        self,
        line: int,
        email: str,
        name: str,
        cells: list[str],
        padded: list[str],
        *,
        errors: Mapping[int, str],
    ) -> MemberRow | RejectedRecord:
        status, problem = self._consent.read(padded)
        if errors and status not in OPT_OUTS and (error := self._find_consent_error(errors)):
            status = SuppressionStatus.UNKNOWN
            problem = error
        if problem is not None:
            return MemberRow(line, email, name, None, None, status, cells, problem=problem)
        tier = self._tiers.read(padded)
        index = self._expiry if status is SuppressionStatus.WANTED and tier != "free" else None
        if index is not None and index in errors:
            reason = self._describe_error(index, errors)
            return RejectedRecord(line, "row.expiry_unreadable", reason, cells)
        try:
            expiry, clears_expiry = self._read_expiry(padded, tier, status)
        except ValueError as error:
            return RejectedRecord(line, "row.expiry_unreadable", str(error), cells)
        extras = self._extras.read(padded) if self._extras else None
        # Pass the arguments by position, because keyword arguments are too slow for the target of
        # the benchmark ``import-1m``.
        values = name, tier, expiry, status, cells, extras, None, clears_expiry
        return MemberRow(line, email, *values)

    def _read_expiry(
        self, cells: Sequence[str], tier: str | None, status: SuppressionStatus
    ) -> tuple[datetime | None, bool]:
        """Return the end date of the paid tier, and whether to remove the stored end date.

        Raises ``ValueError`` if the end date is invalid, unless the row is an opt-out.
        """
        if self._expiry is None or tier == "free":
            return None, False
        cell = cells[self._expiry]
        try:
            expiry = self._forms.parse_date(self._expiry, cell) if cell else None
        except ValueError:
            if status is not SuppressionStatus.WANTED:
                # An opt-out is imported even if the end date of the paid tier is invalid.
                return None, False
            raise ValueError(f"{unguard_cell(cell).strip()[:60]!r} is not a date.") from None
        # In a file with a tier column, a row without a tier and without an end date doesn't remove
        # the stored end date.
        can_clear = tier is not None or not self._has_tiers
        return expiry, expiry is None and can_clear and not isinstance(cell, AbsentCell)


class _TierReader:
    def __init__(self, layout: ColumnLayout) -> None:
        self._layout = layout
        self.indexes = sorted({*layout.find_columns("tier", "paid", "active_subscription")})
        # Repeat the first index, so that itemgetter returns a tuple even for a single column.
        self._pick = itemgetter(*self.indexes, self.indexes[0]) if self.indexes else None
        # The tier is cached, because most records contain one of a few combinations of tier cells.
        self._cached = lru_cache(1024)(self._find_tier)

    def read(self, cells: Sequence[str]) -> str | None:
        if self._pick is None:
            return None
        picked = self._pick(cells)
        # Don't cache the tiers of records with long cells, so that the cache doesn't use too much
        # memory.
        is_short = max(map(len, picked)) <= MAX_WORD_CHARACTERS
        return self._cached(picked) if is_short else self._find_tier(picked)

    def _find_tier(self, picked: tuple[str, ...]) -> str | None:
        layout = self._layout
        cells = dict(zip(self.indexes, picked, strict=False))
        tiers = {"silver" for index in layout.find_columns("paid") if not is_no(cells[index])}
        for index in layout.find_columns("tier"):
            tier = TIERS.get(normalise_word(cells[index]))
            # In files that Ghost exported, the tier column contains the owner's names for paid
            # tiers.
            if tier is None and layout.product == "ghost" and cells[index].strip():
                tier = "silver"
            tiers.add(tier or "")
        for index in layout.find_columns("active_subscription"):
            if is_no(cells[index]):
                return "free"
            tiers.add("silver")
        return max(filter(None, tiers), key=_TIERS.index, default=None)


def _split_address(email: str) -> tuple[str, str]:
    """Split ``Jane Doe <jane@example.com>`` into the address and the name.

    Instead of an address, the text can contain a link, such as
    ``mailto:jane@example.com?subject=Hello``.
    """
    email = strip_invisible(unguard_cell(email))
    name = ""
    if match := _IN_BRACKETS.match(email):
        email = strip_invisible(match[2])
        name = tidy_cell(match[1].strip(' "'))
    if email[: len(_MAILTO)].lower() == _MAILTO:
        email = strip_invisible(email[len(_MAILTO) :].partition("?")[0])
    return email, name
