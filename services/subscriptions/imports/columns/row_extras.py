"""Reads the fields, tags, join date, consent and origin in a record of an imported file.

If a value is invalid, only the value is omitted, and the rest of the row is imported. The result of
an import lists the omitted values, except values of the sign-up origin.
"""

import csv
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import orjson

from core import clock
from models import ConsentHow
from services.subscriptions import tags
from services.subscriptions.fields import FieldValue, InvalidAttribute
from services.subscriptions.formula_guard import unguard_cell
from services.subscriptions.imports.columns.column_forms import ColumnForms
from services.subscriptions.imports.columns.column_layout import (
    CONSENT_PARTS,
    CONSENT_PREFIX,
    JOIN_DATES,
    MAX_COLUMN_NAME_CHARACTERS_SHOWN,
    ORIGIN_PREFIX,
    ColumnLayout,
)
from services.subscriptions.imports.columns.dates import require_past
from services.subscriptions.imports.columns.field_values import abbreviate_cell, parse_value
from services.subscriptions.imports.rows import OmittedValue, RowExtras
from services.subscriptions.sign_up_origins import ORIGIN_NAMES, clean_value
from services.subscriptions.tags import MAX_TAGS_OF_MEMBER

MAX_CLAIM_CHARACTERS = 2_000

# The keys of a consent claim whose values are times.
_TIMES = ("at", "confirmed_at")
# The keys of a consent claim whose values are IP addresses.
_IP_ADDRESSES = ("ip", "confirmed_ip")
_BUTTONDOWN = "buttondown"


class RowExtrasReader:
    def __init__(self, layout: ColumnLayout, forms: ColumnForms) -> None:
        self._layout = layout
        self._forms = forms
        self._tag_columns = layout.find_columns("tags")
        # A file that Pressroom exported may have the columns ``joined_at`` and ``created_at``.
        self._joined_at_columns = layout.find_columns(*JOIN_DATES)
        parts = ((part, layout.find_first_column(CONSENT_PREFIX + part)) for part in CONSENT_PARTS)
        self._consent_columns = {part: index for part, index in parts if index is not None}
        origins = (ORIGIN_PREFIX + name for name in ORIGIN_NAMES)
        columns = ((role, layout.find_first_column(role)) for role in origins)
        self._origin_columns = {role: index for role, index in columns if index is not None}
        # Files from Buttondown contain the referring page only in the column ``referrer_url``,
        # which Pressroom also uses as the URL of the consent (``consent.url``).
        if layout.product == _BUTTONDOWN and "url" in self._consent_columns:
            referrer_role = f"{ORIGIN_PREFIX}referrer"
            self._origin_columns.setdefault(referrer_role, self._consent_columns["url"])
        self.indexes = [
            *(*layout.fields, *self._tag_columns),
            *(*self._joined_at_columns, *self._consent_columns.values()),
            *self._origin_columns.values(),
        ]

    def read(self, cells: Sequence[str]) -> RowExtras | None:
        left_out: list[OmittedValue] = []
        fields = dict(self._read_fields(cells, left_out))
        tag_names = self._read_tags(cells, left_out) if self._tag_columns else ()
        claim = dict(self._read_claims(cells, left_out)) if self._consent_columns else {}
        claim.update(self._read_origin(cells))
        joined_at = self._read_joined_at(cells, claim, left_out)
        if not (fields or tag_names or claim or joined_at or left_out):
            return None
        return RowExtras(fields, tag_names, joined_at, claim, left_out)

    def _read_fields(
        self, cells: Sequence[str], left_out: list[OmittedValue]
    ) -> Iterator[tuple[str, FieldValue]]:
        for index, field in self._layout.fields.items():
            if not cells[index]:
                continue
            try:
                value = parse_value(cells[index], field, self._forms, index)
                if value is not None:
                    yield str(field.id), value
            except ValueError as error:
                left_out.append(self._build_omission(index, error, cells[index]))

    def _read_tags(self, cells: Sequence[str], left_out: list[OmittedValue]) -> Sequence[str]:
        names: dict[str, str] = {}
        for index in self._tag_columns:
            # Report only the first invalid tag in a cell, because a cell may contain many invalid
            # tags.
            problem: OmittedValue | None = None
            for text in split_tags(cells[index]):
                try:
                    name = tags.normalise_tag(text)
                except InvalidAttribute as error:
                    problem = problem or self._build_omission(index, f"each {error}", text)
                    continue
                if tags.fold_tag(name) in names or len(names) < MAX_TAGS_OF_MEMBER:
                    names.setdefault(tags.fold_tag(name), name)
                else:
                    rule = f"a member can have at most {MAX_TAGS_OF_MEMBER} tags"
                    problem = problem or self._build_omission(index, rule)
            if problem is not None:
                left_out.append(problem)
        return [*names.values()]

    def _read_claims(
        self, cells: Sequence[str], left_out: list[OmittedValue]
    ) -> Iterator[tuple[str, str]]:
        for part, index in self._consent_columns.items():
            text = unguard_cell(cells[index]).strip()
            if not text:
                continue
            try:
                if value := self._parse_claim(part, index, text):
                    yield part, value
            except ValueError as error:
                left_out.append(self._build_omission(index, error, text))

    def _read_origin(self, cells: Sequence[str]) -> Iterator[tuple[str, str]]:
        for role, index in self._origin_columns.items():
            value = clean_value(role.removeprefix(ORIGIN_PREFIX), unguard_cell(cells[index]))
            if value is not None:
                yield role, value

    def _read_joined_at(
        self, cells: Sequence[str], claim: Mapping[str, str], left_out: list[OmittedValue]
    ) -> str | None:
        for index in self._joined_at_columns:
            try:
                moment = self._parse_past(index, cells[index])
            except ValueError as error:
                left_out.append(self._build_omission(index, error, cells[index]))
            else:
                if moment is not None:
                    return clock.format_timestamp(moment)
        # Use the time of the consent as the join date, because Mailchimp exports no other join
        # date.
        return claim.get("confirmed_at") or claim.get("at")

    def _parse_claim(self, part: str, index: int, text: str) -> str | None:
        """Convert a value of a consent claim, such as its time, to the stored form."""
        if part in _TIMES:
            moment = self._parse_past(index, text)
            return None if moment is None else clock.format_timestamp(moment)
        if len(text) > MAX_CLAIM_CHARACTERS:
            raise ValueError(f"must have at most {MAX_CLAIM_CHARACTERS:,} characters")
        if part in _IP_ADDRESSES:
            try:
                # Accept IP networks, because Pressroom exports a network instead of an old IP
                # address.
                ipaddress.ip_network(text, strict=False)
            except ValueError:
                raise ValueError("must be an IP address") from None
        if part == "how" and text not in set(ConsentHow):
            raise ValueError(f"must be one of {', '.join(ConsentHow)}")
        return text

    def _parse_past(self, index: int, cell: str) -> datetime | None:
        """Parse the date of a past event. Raises ``ValueError`` for an invalid date."""
        moment = self._forms.parse_date(index, cell)
        if moment is not None:
            require_past(moment, cell)
        return moment

    def _build_omission(self, index: int, rule: object, cell: str | None = None) -> OmittedValue:
        column = self._layout.header[index].strip()[:MAX_COLUMN_NAME_CHARACTERS_SHOWN]
        return OmittedValue(column, str(rule), None if cell is None else abbreviate_cell(cell))


def split_tags(cell: str) -> Iterator[str]:
    """Yield the tag names in a cell, which contains a comma-separated list or a JSON array."""
    text = " ".join(unguard_cell(cell).split())
    names: list[Any] = []
    if text.startswith("["):
        with suppress(ValueError):
            names = orjson.loads(text)
    if not names and text:
        names = next(csv.reader([text], skipinitialspace=True), [])
    for name in names:
        if isinstance(name, str) and (stripped := name.strip()):
            yield stripped
