"""Converts the cells of a column into values of the owner's field."""

import re
from collections.abc import Iterable

from models import FieldType, MemberField
from services.subscriptions import fields
from services.subscriptions.export_sheets import bare_cell
from services.subscriptions.fields import (
    FieldValue,
)
from services.subscriptions.imports.column_forms import ColumnForms
from services.subscriptions.imports.column_vocabulary import BOOLEANS
from services.subscriptions.imports.dates import is_written_date
from services.subscriptions.imports.known_words import key

MAX_CELL_CHARACTERS_SHOWN = 40

# Numbers that are written as we write them: in another form, such as that of a postal code or of a
# telephone number, signs or zeros would be lost.
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9]\d{0,9})(\.\d{0,4}[1-9])?\Z", re.ASCII)

# Amounts with a decimal comma; "1,2" may be a list.
_AMOUNT = re.compile(r"-?(0|[1-9]\d{0,9}|[1-9]\d{0,2}(\.\d{3})+),\d\d\Z", re.ASCII)


def read_value(cell: str, field: MemberField, forms: ColumnForms, index: int) -> FieldValue | None:
    """The value of a cell of this column as the field stores it; ``None`` for a blank one.

    Raises ``ValueError``, whose text is the rule.
    """
    text = bare_cell(cell).strip()
    if not text:
        return None
    if field.type == FieldType.DATE:
        moment = forms.moment(index, text)
        return None if moment is None else fields.normalise_value(field, moment.date().isoformat())
    if field.type == FieldType.NUMBER:
        text = forms.number(index, text)
    elif field.type == FieldType.BOOLEAN and (word := key(text)) in BOOLEANS:
        return BOOLEANS[word]
    return fields.parse_value(field, text)


def cell_shown(cell: str) -> str:
    """The cell as an error names it."""
    text = bare_cell(cell).strip()
    shown = text[:MAX_CELL_CHARACTERS_SHOWN]
    return shown + "…" if len(text) > len(shown) else shown


def guess_type(cells: Iterable[str]) -> FieldType:
    """The type of which all these cells are written values; text where they don't agree."""
    seen = {text for cell in cells if (text := bare_cell(cell).strip())}
    if not seen:
        return FieldType.TEXT
    if all(map(_PLAIN_NUMBER.match, seen)) or all(map(_AMOUNT.match, seen)):
        return FieldType.NUMBER
    if all(map(is_written_date, seen)):
        return FieldType.DATE
    if all(key(text) in BOOLEANS for text in seen):
        return FieldType.BOOLEAN
    return FieldType.TEXT
