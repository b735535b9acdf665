"""Cells that a spreadsheet would run as a formula, made harmless.

After OWASP, "CSV Injection": what begins with one of these gets an apostrophe in front, which
spreadsheets do not show and our reader takes away again.
"""

RUN = frozenset("=+-@\t\r")


def guarded(cell: str) -> str:
    return f"'{cell}" if cell[:1] in RUN else cell
