"""The columns that hold fields, tags, the day of joining, and what the file says of consent.

A value that does not fit is left out and told of; the row is taken over without it.
"""

import csv
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from core import clock
from models import ConsentHow
from services.mailing.attributes import tags
from services.mailing.attributes.field_values import FieldValue, ValueRefused
from services.mailing.attributes.tags import MAX_TAGS_OF_MEMBER
from services.mailing.imports.mapping.cell_values import MAX_CELL_CHARACTERS_SHOWN, read_value
from services.mailing.imports.mapping.columns import ColumnLayout
from services.mailing.imports.mapping.dates import read_moment
from services.mailing.imports.mapping.rows import RowExtras
from services.mailing.spreadsheets import bare_cell

MAX_CLAIM_CHARACTERS = 2_000
MAX_COLUMN_CHARACTERS_SHOWN = 60

_MOMENTS = ("at", "confirmed_at")
_ADDRESSES = ("ip", "confirmed_ip")


class AttributeReader:
    """Reads these columns of the records of one layout."""

    def __init__(self, layout: ColumnLayout) -> None:
        self._layout = layout
        # A record of ours may have both.
        joined = layout.joined_at, layout.created_at
        self._joined = [index for index in joined if index is not None]
        self.indexes = [*layout.fields, *layout.tags, *self._joined, *layout.consent.values()]

    def read(self, cells: Sequence[str]) -> RowExtras | None:
        """What a record that has all columns says; ``None``: nothing."""
        left_out: list[str] = []
        fields = dict(self._fields(cells, left_out))
        named = self._tags(cells, left_out) if self._layout.tags else ()
        claim = dict(self._claims(cells, left_out)) if self._layout.consent else {}
        joined_at = self._joined_at(cells, claim, left_out)
        if not (fields or named or claim or joined_at or left_out):
            return None
        return RowExtras(fields, named, joined_at, claim, left_out)

    def _fields(
        self, cells: Sequence[str], left_out: list[str]
    ) -> Iterator[tuple[str, FieldValue]]:
        for index, field in self._layout.fields.items():
            if not cells[index]:
                continue
            try:
                if (value := read_value(cells[index], field)) is not None:
                    yield str(field.id), value
            except ValueRefused as error:
                left_out.append(self._told(index, error))

    def _tags(self, cells: Sequence[str], left_out: list[str]) -> Sequence[str]:
        found: dict[str, str] = {}
        for index in self._layout.tags:
            unfit = ""
            for written in split_tags(cells[index]):
                try:
                    name = tags.read(written)
                except ValueRefused as error:
                    unfit = unfit or f"each {error}, not {written[:MAX_CELL_CHARACTERS_SHOWN]!r}"
                    continue
                if tags.folded(name) in found or len(found) < MAX_TAGS_OF_MEMBER:
                    found.setdefault(tags.folded(name), name)
                else:
                    unfit = unfit or f"a member has at most {MAX_TAGS_OF_MEMBER} tags"
            # One sentence a cell, which may have very many.
            if unfit:
                left_out.append(self._told(index, unfit))
        return [*found.values()]

    def _claims(self, cells: Sequence[str], left_out: list[str]) -> Iterator[tuple[str, str]]:
        for part, index in self._layout.consent.items():
            text = bare_cell(cells[index]).strip()
            if not text:
                continue
            try:
                if claimed := _claimed(part, text):
                    yield part, claimed
            except ValueError as error:
                left_out.append(self._told(index, error))

    def _joined_at(
        self, cells: Sequence[str], claim: Mapping[str, str], left_out: list[str]
    ) -> str | None:
        for index in self._joined:
            try:
                moment = read_moment(cells[index])
            except ValueError as error:
                left_out.append(self._told(index, error))
            else:
                if moment is not None:
                    return clock.iso(moment)
        # Mailchimp has no other date of joining.
        return claim.get("confirmed_at") or claim.get("at")

    def _told(self, index: int, rule: object) -> str:
        return f"{self._layout.header[index].strip()[:MAX_COLUMN_CHARACTERS_SHOWN]}: {rule}"


def split_tags(cell: str) -> Iterator[str]:
    """The names in a cell: parted by commas, in quotes or not, or a JSON array."""
    text = " ".join(bare_cell(cell).split())
    names: list[Any] = []
    if text.startswith("["):
        try:
            names = orjson.loads(text)
        except ValueError:
            names = []
    if not names and text:
        names = next(csv.reader([text], skipinitialspace=True), [])
    for name in names:
        if isinstance(name, str) and (shown := name.strip()):
            yield shown


def _claimed(part: str, text: str) -> str | None:
    """One part of a claim as it is kept; raises ``ValueError``."""
    if part in _MOMENTS:
        moment = read_moment(text)
        return None if moment is None else clock.iso(moment)
    if len(text) > MAX_CLAIM_CHARACTERS:
        raise ValueError(f"must have at most {MAX_CLAIM_CHARACTERS:,} characters")
    if part in _ADDRESSES:
        try:
            # Our own exports have the networks alone of addresses that are old.
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            shown = text[:MAX_CELL_CHARACTERS_SHOWN]
            raise ValueError(f"must be an IP address, not {shown!r}") from None
    if part == "how" and text not in set(ConsentHow):
        raise ValueError(f"must be one of {', '.join(ConsentHow)}")
    return text
