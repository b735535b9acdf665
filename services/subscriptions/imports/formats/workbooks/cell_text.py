"""Converts the values of cells in a workbook into text.

A number or a date becomes a Python list that contains the text. The list tells the worker that the
text doesn't just look like a number or a date.
"""

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from services.subscriptions.imports.columns.known_words import MAX_TEXT_CHARACTERS

# The maximum length of a row, which equals ``line_blocks.MAX_LINE_CHARACTERS``. The child process
# must not import ``line_blocks``, because ``line_blocks`` loads the database layer.
MAX_ROW_CHARACTERS = 256 * 1024
# The description of a cell whose formula has no stored value.
UNCALCULATED = "a formula that was never calculated"
# Excel stores numbers with 15 significant digits.
_MAX_EXACT_INTEGER = 10**15
_HOUR_SECONDS = 3_600
_MINUTE_SECONDS = 60

CellText = str | list[str]


def convert_cells(values: Sequence[Any]) -> list[CellText]:
    """Return the texts of the cells in a row.

    - A whole number has no decimal places, and a fraction has a decimal point.
    - A date is in ISO 8601. A date at midnight has no time of day.
    - A truth value is ``TRUE`` or ``FALSE``, as in a CSV file that Excel writes.
    """
    return [value if type(value) is str else _FORMATTERS[type(value)](value) for value in values]


def shorten_cell(cell: CellText) -> CellText:
    """Shorten a cell, because a merged range can repeat it in a million rows."""
    if isinstance(cell, str):
        return cell[:MAX_TEXT_CHARACTERS]
    return cell


def _format_number(value: float) -> CellText:
    if not math.isfinite(value):
        return ""
    if value.is_integer() and abs(value) < _MAX_EXACT_INTEGER:
        return [str(int(value))]
    text = f"{value:.15g}"
    return [format(Decimal(text), "f") if "e" in text else text]


def _format_moment(value: datetime) -> CellText:
    if value.time() == time():
        return [value.date().isoformat()]
    return [value.isoformat(" ", "seconds")]


def _format_duration(value: timedelta) -> CellText:
    seconds = round(value.total_seconds())
    sign = "-" if seconds < 0 else ""
    hours, rest = divmod(abs(seconds), _HOUR_SECONDS)
    minutes, seconds = divmod(rest, _MINUTE_SECONDS)
    return [f"{sign}{hours}:{minutes:02}:{seconds:02}"]


_FORMATTERS: dict[type, Callable[[Any], CellText]] = {
    bool: lambda value: "TRUE" if value else "FALSE",
    int: lambda value: [str(value)],
    float: _format_number,
    date: lambda value: [value.isoformat()],
    datetime: _format_moment,
    time: lambda value: [value.isoformat("seconds")],
    timedelta: _format_duration,
}
