"""Guards cells of spreadsheets against being treated as formulas.

Spreadsheet programs treat a cell that begins with a sign such as ``=`` or ``+`` as a formula.
Exports put an apostrophe in front of a formula, as OWASP recommends under "CSV Injection". Exports
guard a sign after a semicolon, tab or line end too, where a new cell may start. Imports remove the
apostrophes that exports have added.
"""

import re
from collections.abc import Sequence

# Matches a sign that can begin a formula in a spreadsheet, including the full-width signs of East
# Asian locales.
_SIGN = r"[=+\-@\t\r\n＝＋－＠]"  # noqa: RUF001
_CELL_START = r"(\A|[;\t\r\n])"
# Matches the start of a cell that contains a formula. Spaces and quotes may precede the sign of the
# formula, because spreadsheet programs may skip spaces and quotes.
_UNGUARDED_START = re.compile(rf'{_CELL_START}(?=[ "]*{_SIGN})')
# Matches a semicolon, tab or line end before a formula.
_ANY_UNGUARDED_START = re.compile(rf'[;\t\r\n][ "]*{_SIGN}')
# Matches the start of a cell that contains a formula, even if the formula already has an
# apostrophe. If a formula already has an apostrophe, the export adds a second one, and an import
# removes only the added apostrophe.
_ANY_START = re.compile(rf"{_CELL_START}(?=[ \"']*{_SIGN})")
_GUARDED_START = re.compile(rf"{_CELL_START}'(?=[ \"']*{_SIGN})")
# First search for a character that can start a formula, because few cells contain such a character
# and the search for formulas is slower.
_ANY_SIGN = re.compile(_SIGN)


def guard_foreign_cell(cell: str) -> str:
    return _UNGUARDED_START.sub(r"\1'", cell)


def guard_foreign_cells(cells: Sequence[str]) -> list[str]:
    if _ANY_UNGUARDED_START.search(";" + ";".join(cells)) is None:
        return list(cells)
    return [guard_foreign_cell(cell) for cell in cells]


def guard_cell(value: str) -> str:
    return _ANY_START.sub(r"\1'", value) if _ANY_SIGN.search(value) else value


def unguard_cell(cell: str) -> str:
    return _GUARDED_START.sub(r"\1", cell)
