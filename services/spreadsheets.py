"""Cells that a spreadsheet would run as a formula, made harmless.

After OWASP, "CSV Injection": what begins with one of these gets an apostrophe in front, which
spreadsheets do not show and our reader takes away again. So does what looks guarded already, or
the reader would take away an apostrophe of its own.
"""

RUN = frozenset("=+-@\t\r")


def guarded(cell: str) -> str:
    first = cell[:1]
    if first in RUN or (first == "'" and cell.lstrip("'")[:1] in RUN):
        return f"'{cell}"
    return cell
