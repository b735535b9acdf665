"""The values of an owner's fields as the cells of files write them."""

import re
from collections.abc import Iterable
from datetime import date

from models import FieldType, MemberField
from services.mailing.attributes import field_values
from services.mailing.attributes.field_values import FieldValue, ValueRefused
from services.mailing.imports.mapping.dates import read_moment
from services.mailing.spreadsheets import bare_cell

MAX_CELL_CHARACTERS_SHOWN = 40

# Numbers that are written as we write them: in another form, such as that of a postal code or of a
# telephone number, signs or zeros would be lost.
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9]\d{0,9})(\.\d{0,4}[1-9])?\Z", re.ASCII)
_PLAIN_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_PLAIN_BOOLEANS = frozenset({"true", "false", "yes", "no"})


def read_value(cell: str, field: MemberField) -> FieldValue | None:
    """The value of a cell as the field stores it; ``None`` for a blank one.

    Raises ``ValueRefused``, whose text names the rule and the cell.
    """
    written = text = bare_cell(cell).strip()
    try:
        if text and field.type == FieldType.DATE:
            text = _day(text)
        return field_values.stored_of_text(field, text)
    except ValueRefused as error:
        shown = written[:MAX_CELL_CHARACTERS_SHOWN]
        shown += "…" if len(written) > len(shown) else ""
        raise ValueRefused(f"{error}, not {shown!r}") from None


def _day(text: str) -> str:
    """The day of a date in any form that the other columns of dates may have."""
    try:
        moment = read_moment(text)
    except ValueError:
        return text
    return text if moment is None else moment.date().isoformat()


def _is_plain_date(text: str) -> bool:
    try:
        return _PLAIN_DATE.match(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def guess_type(cells: Iterable[str]) -> FieldType:
    """The type of which all these cells are written values; text where they don't agree."""
    seen = {text for cell in cells if (text := bare_cell(cell).strip())}
    if seen and all(map(_PLAIN_NUMBER.match, seen)):
        return FieldType.NUMBER
    if seen and all(map(_is_plain_date, seen)):
        return FieldType.DATE
    if seen and {text.casefold() for text in seen} <= _PLAIN_BOOLEANS:
        return FieldType.BOOLEAN
    return FieldType.TEXT
