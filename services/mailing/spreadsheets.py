"""Cells that a spreadsheet would run as a formula, made harmless.

After OWASP, "CSV Injection": what begins with one of these gets an apostrophe in front, which
spreadsheets do not show and our reader takes away again.
"""

FORMULA_STARTS = frozenset("=+-@\t\r")


def escape_foreign_cell(cell: str) -> str:
    """A cell as somebody's file has it, which may have been guarded there already."""
    return f"'{cell}" if cell[:1] in FORMULA_STARTS else cell


def escape_formula(value: str) -> str:
    """A value of ours: the reader's exact opposite, for one that looks guarded as well."""
    first = value[:1]
    if first in FORMULA_STARTS or (first == "'" and value.lstrip("'")[:1] in FORMULA_STARTS):
        return f"'{value}"
    return value
