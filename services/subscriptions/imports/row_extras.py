"""Reads the values of a record beyond the address, name, tier or status."""

import csv
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from core import clock
from models import ConsentHow
from services.subscriptions import tags
from services.subscriptions.export_sheets import bare_cell
from services.subscriptions.fields import FieldValue, ValueRefused
from services.subscriptions.imports.column_forms import ColumnForms
from services.subscriptions.imports.column_layout import CONSENT_PARTS, CONSENT_PREFIX, ColumnLayout
from services.subscriptions.imports.field_values import cell_shown, read_value
from services.subscriptions.imports.rows import (
    LeftOut,
    RowExtras,
)
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
                    name = tags.normalise_tag(written)
                except ValueRefused as error:
                    unfit = unfit or self._told(index, f"each {error}", written)
                    continue
                if tags.fold_tag(name) in found or len(found) < MAX_TAGS_OF_MEMBER:
                    found.setdefault(tags.fold_tag(name), name)
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
