"""Converts the text in a cell into a value for one of the owner's fields."""

import re
from collections.abc import Iterable

from models import FieldType, MemberField
from services.subscriptions import fields
from services.subscriptions.fields import FieldValue
from services.subscriptions.formula_guard import unguard_cell
from services.subscriptions.imports.columns.column_forms import ColumnForms
from services.subscriptions.imports.columns.column_vocabulary import BOOLEANS, find_concept
from services.subscriptions.imports.columns.dates import complete_birthday, is_written_date
from services.subscriptions.imports.columns.known_words import normalise_word
from services.subscriptions.imports.rows import TypedCell

MAX_CELL_CHARACTERS_SHOWN = 40

# Matches numbers that stay the same when they are parsed and formatted again. The pattern rejects
# postal codes and telephone numbers from which a conversion would drop a zero or a plus sign.
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9]\d{0,9})(\.\d{0,4}[1-9])?\Z", re.ASCII)
# Matches amounts with a decimal comma and two decimal places. Text such as "1,2" isn't an amount,
# because it may be a list of two numbers.
_AMOUNT = re.compile(r"-?(0|[1-9]\d{0,9}|[1-9]\d{0,2}(\.\d{3})+),\d\d\Z", re.ASCII)


def parse_value(cell: str, field: MemberField, forms: ColumnForms, index: int) -> FieldValue | None:
    """Return the value of a cell in the form in which field values are stored.

    Raises ``ValueError`` for an invalid cell. The error's message states which rule the cell
    breaks.
    """
    text = unguard_cell(cell).strip()
    if not text:
        return None
    if field.type == FieldType.DATE:
        moment = forms.parse_date(index, text)
        if moment is None:
            return None
        if is_birthday(field):
            moment = complete_birthday(moment, text)
        return fields.normalise_value(field, moment.date().isoformat())
    if field.type == FieldType.NUMBER:
        # Pass on a ``TypedCell`` unchanged, because ``text`` no longer has this type.
        number = cell if isinstance(cell, TypedCell) else text
        text = forms.normalise_number(index, number)
    elif field.type == FieldType.BOOLEAN and (word := normalise_word(text)) in BOOLEANS:
        return BOOLEANS[word]
    return fields.parse_value(field, text)


def is_birthday(field: MemberField) -> bool:
    return "birthday" in (find_concept(field.key), find_concept(field.label))


def abbreviate_cell(cell: str) -> str:
    text = unguard_cell(cell).strip()
    beginning = text[:MAX_CELL_CHARACTERS_SHOWN]
    return beginning + "…" if len(text) > len(beginning) else beginning


def guess_type(cells: Iterable[str]) -> FieldType:
    """Return the field type that fits all cells of a column, or text if no other type fits."""
    texts = {text for cell in cells if (text := unguard_cell(cell).strip())}
    if not texts:
        return FieldType.TEXT
    if all(map(_PLAIN_NUMBER.match, texts)) or all(map(_AMOUNT.match, texts)):
        return FieldType.NUMBER
    if all(map(is_written_date, texts)):
        return FieldType.DATE
    if all(normalise_word(text) in BOOLEANS for text in texts):
        return FieldType.BOOLEAN
    return FieldType.TEXT
