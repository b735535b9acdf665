"""Makes members of records, by the layout of their file."""

import csv
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import orjson

from core import clock
from core.languages.shown_lines import strip_unseen
from models import ConsentHow
from services.subscriptions import tags
from services.subscriptions.export_sheets import bare_cell
from services.subscriptions.fields import FieldValue, ValueRefused
from services.subscriptions.imports.cells import TierReader, cell_shown, read_value
from services.subscriptions.imports.columns import (
    ABSENT,
    CONSENT_PARTS,
    CONSENT_PREFIX,
    AbsentCell,
    ColumnLayout,
    LeftOut,
    MemberRow,
    RejectedRecord,
    RowExtras,
    SuppressionStatus,
)
from services.subscriptions.imports.consent_readings import ConsentReader
from services.subscriptions.imports.containers import is_damaged, repair_text
from services.subscriptions.imports.names import NameReader, tidy_cell
from services.subscriptions.imports.written_forms import ColumnForms
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER

# A value that does not fit is left out and told of; the row is taken over without it.

MAX_CLAIM_CHARACTERS = 2_000
MAX_COLUMN_CHARACTERS_SHOWN = 60

_MOMENTS = ("at", "confirmed_at")
_ADDRESSES = ("ip", "confirmed_ip")


class AttributeReader:
    """Reads these columns of the records of one layout."""

    def __init__(self, layout: ColumnLayout, forms: ColumnForms) -> None:
        self._layout = layout
        self._forms = forms
        self._named = layout.of("tags")
        # A record of ours may have both.
        self._joined = layout.of("joined_at", "created_at")
        parts = ((part, layout.first(CONSENT_PREFIX + part)) for part in CONSENT_PARTS)
        self._consent = {part: index for part, index in parts if index is not None}
        self.indexes = [*layout.fields, *self._named, *self._joined, *self._consent.values()]

    def read(self, cells: Sequence[str]) -> RowExtras | None:
        """Return the extras of a record that has all columns, or ``None``."""
        left_out: list[LeftOut] = []
        fields = dict(self._fields(cells, left_out))
        named = self._tags(cells, left_out) if self._named else ()
        claim = dict(self._claims(cells, left_out)) if self._consent else {}
        joined_at = self._joined_at(cells, claim, left_out)
        if not (fields or named or claim or joined_at or left_out):
            return None
        return RowExtras(fields, named, joined_at, claim, left_out)

    def _fields(
        self, cells: Sequence[str], left_out: list[LeftOut]
    ) -> Iterator[tuple[str, FieldValue]]:
        for index, field in self._layout.fields.items():
            if not cells[index]:
                continue
            try:
                value = read_value(cells[index], field, self._forms, index)
                if value is not None:
                    yield str(field.id), value
            except ValueError as error:
                left_out.append(self._told(index, error, cells[index]))

    def _tags(self, cells: Sequence[str], left_out: list[LeftOut]) -> Sequence[str]:
        found: dict[str, str] = {}
        for index in self._named:
            unfit: LeftOut | None = None
            for written in split_tags(cells[index]):
                try:
                    name = tags.read(written)
                except ValueRefused as error:
                    unfit = unfit or self._told(index, f"each {error}", written)
                    continue
                if tags.folded(name) in found or len(found) < MAX_TAGS_OF_MEMBER:
                    found.setdefault(tags.folded(name), name)
                else:
                    rule = f"a member has at most {MAX_TAGS_OF_MEMBER} tags"
                    unfit = unfit or self._told(index, rule)
            # A cell is told of once, however many values it has.
            if unfit is not None:
                left_out.append(unfit)
        return [*found.values()]

    def _claims(self, cells: Sequence[str], left_out: list[LeftOut]) -> Iterator[tuple[str, str]]:
        for part, index in self._consent.items():
            text = bare_cell(cells[index]).strip()
            if not text:
                continue
            try:
                if claimed := self._claimed(part, index, text):
                    yield part, claimed
            except ValueError as error:
                left_out.append(self._told(index, error, text))

    def _joined_at(
        self, cells: Sequence[str], claim: Mapping[str, str], left_out: list[LeftOut]
    ) -> str | None:
        for index in self._joined:
            try:
                moment = self._forms.moment(index, cells[index])
            except ValueError as error:
                left_out.append(self._told(index, error, cells[index]))
            else:
                if moment is not None:
                    return clock.iso(moment)
        # Mailchimp has no other date of joining.
        return claim.get("confirmed_at") or claim.get("at")

    def _claimed(self, part: str, index: int, text: str) -> str | None:
        """Return a part of a claim as it is kept; raises ``ValueError``, whose text is the rule."""
        if part in _MOMENTS:
            moment = self._forms.moment(index, text)
            return None if moment is None else clock.iso(moment)
        if len(text) > MAX_CLAIM_CHARACTERS:
            raise ValueError(f"must have at most {MAX_CLAIM_CHARACTERS:,} characters")
        if part in _ADDRESSES:
            try:
                # Our own exports have the networks alone of addresses that are old.
                ipaddress.ip_network(text, strict=False)
            except ValueError:
                raise ValueError("must be an IP address") from None
        if part == "how" and text not in set(ConsentHow):
            raise ValueError(f"must be one of {', '.join(ConsentHow)}")
        return text

    def _told(self, index: int, rule: object, cell: str | None = None) -> LeftOut:
        column = self._layout.header[index].strip()[:MAX_COLUMN_CHARACTERS_SHOWN]
        return LeftOut(column, str(rule), None if cell is None else cell_shown(cell))


def split_tags(cell: str) -> Iterator[str]:
    """The names in a cell: parted by commas, in quotes or not, or a JSON array."""
    text = " ".join(bare_cell(cell).split())
    names: list[Any] = []
    if text.startswith("["):
        with suppress(ValueError):
            names = orjson.loads(text)
    if not names and text:
        names = next(csv.reader([text], skipinitialspace=True), [])
    for name in names:
        if isinstance(name, str) and (shown := name.strip()):
            yield shown


_IN_BRACKETS = re.compile(r"([^<>]*)<([^<>\s]+)>\Z")
# The ends of a cell that is empty, has brackets, or has the old mark of a file's end.
_ODD_ENDS = ("", ">", "\x1a")


class RowMapper:
    """Makes the rows of files of one layout, which has a column of addresses."""

    def __init__(
        self, layout: ColumnLayout, email: int, forms: ColumnForms, consent: ConsentReader
    ) -> None:
        self._email = email
        self._forms = forms
        self._names = NameReader(layout)
        self._expiry = layout.first("paid_expiry")
        self._consent = consent
        self._tiers = TierReader(layout)
        self._has_tiers = bool(layout.of("tier", "paid", "active_subscription"))
        attributes = AttributeReader(layout, forms)
        # Most files have none.
        self._attributes = attributes if attributes.indexes else None
        singles = [i for i in (email, self._expiry) if i is not None]
        read = (
            *(*singles, *self._names.indexes, *consent.indexes),
            *(*self._tiers.indexes, *attributes.indexes),
        )
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
        padded = [*cells, *[ABSENT] * short] if short > 0 else cells
        email = padded[self._email].strip()
        name = self._names.read(padded)
        if not email.isascii() or email[:1] == "'" or email[-1:] in _ODD_ENDS:
            email, name_beside = _split_address(email)
            name = name or name_beside
            if not email and not any(strip_unseen(cell) for cell in cells):
                return None
            if not email:
                reason = "There is no e-mail address in this row."
                return RejectedRecord(line, "row.no_email", reason, cells)
        return self._row(line, email, name, cells, padded)

    def _row(
        self, line: int, email: str, name: str, cells: list[str], padded: list[str]
    ) -> MemberRow | RejectedRecord:
        """Return the member's row. ``padded``: ``cells`` plus an empty cell per missing column."""
        status, problem = self._consent.read(padded)
        if problem is not None:
            return MemberRow(line, email, name, None, None, status, cells, problem=problem)
        tier = self._tiers.read(padded)
        try:
            expiry, clears_expiry = self._read_expiry(padded, tier, status)
        except ValueError as error:
            return RejectedRecord(line, "row.expiry_unreadable", str(error), cells)
        extras = self._attributes.read(padded) if self._attributes else None
        # Use positional arguments here, because keyword arguments are slower.
        return MemberRow(
            line, email, name, tier, expiry, status, cells, extras, None, clears_expiry
        )

    def _read_expiry(
        self, cells: Sequence[str], tier: str | None, status: SuppressionStatus
    ) -> tuple[datetime | None, bool]:
        """Return the end of the paid tier, and whether the row removes the stored end.

        Raises ``ValueError`` if the end can't be parsed and the row isn't an opt-out.
        """
        if self._expiry is None or tier == "free":
            return None, False
        cell = cells[self._expiry]
        try:
            expiry = self._forms.moment(self._expiry, cell) if cell else None
        except ValueError:
            if status is not SuppressionStatus.WANTED:
                # An opt-out is imported even if the end date of its paid tier can't be parsed.
                return None, False
            raise ValueError(f"{bare_cell(cell).strip()[:60]!r} is no date.") from None
        # If the file has a tier column and both the tier and the end are empty, the stored end
        # stays.
        can_clear = tier is not None or not self._has_tiers
        return expiry, expiry is None and can_clear and not isinstance(cell, AbsentCell)


def _split_address(email: str) -> tuple[str, str]:
    """Split ``Jane Doe <jane@example.com>`` into the address and the name."""
    email = strip_unseen(bare_cell(email))
    if found := _IN_BRACKETS.match(email):
        return strip_unseen(found[2]), tidy_cell(found[1].strip(' "'))
    return email, ""
