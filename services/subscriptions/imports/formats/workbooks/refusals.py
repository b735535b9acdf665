"""Defines the refusal of a workbook, which the child process reports to the worker."""

from enum import StrEnum

# Excel permits 31 characters. Names that exceed this maximum are cut off.
MAX_SHEET_NAME_CHARACTERS = 255


class RefusalKind(StrEnum):
    """The kind of a refusal. ``workbook.REFUSALS`` maps each kind to an error for the owner."""

    TOO_LARGE = "too_large"
    ENCRYPTED = "encrypted"
    DAMAGED = "damaged"
    OTHER_SPREADSHEET = "other_spreadsheet"
    UNKNOWN_FORMAT = "unknown_format"


class WorkbookRefused(Exception):
    def __init__(self, kind: RefusalKind, what: str = "") -> None:
        super().__init__(kind, what)
        self.kind = kind
        self.what = what


def refuse_damaged(what: str) -> WorkbookRefused:
    return WorkbookRefused(RefusalKind.DAMAGED, what)


def refuse_large(what: str) -> WorkbookRefused:
    return WorkbookRefused(RefusalKind.TOO_LARGE, what)
