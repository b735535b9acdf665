"""Escapes for cells that a spreadsheet would run as a formula.

OWASP, "CSV Injection": a cell that begins with one of these characters gets an apostrophe in front.
Spreadsheets do not show the apostrophe, and the reader of imports removes it again.
"""

FORMULA_STARTS = frozenset("=+-@\t\r")


def escape_foreign_cell(cell: str) -> str:
    """A cell of an uploaded file, which the file's writer may have escaped already."""
    return f"'{cell}" if cell[:1] in FORMULA_STARTS else cell


def escape_formula(value: str) -> str:
    """A stored value: the exact inverse of the reader, also for a value that looks escaped."""
    # The reader ignores blanks before a cell that has no quotes, and so may a spreadsheet.
    shown = value.lstrip(" ")
    if shown.lstrip("'")[:1] in FORMULA_STARTS:
        return f"'{shown}"
    return value
