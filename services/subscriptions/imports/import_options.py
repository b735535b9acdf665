"""Defines the options of an import, and parses the options from text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from core.errors import imports as errors
from core.errors.catalogue import ErrorType
from models import ImportKind
from services.jobs.kinds import JobKind
from services.subscriptions.imports.columns.consent_cells import check_status_values
from services.subscriptions.imports.columns.dates import DateOrder
from services.subscriptions.imports.formats import encodings
from services.subscriptions.imports.import_job import IMPORT_FILE, IMPORT_SUPPRESSIONS

MAX_STATUS_VALUES = 200


@dataclass(frozen=True)
class ImportOptions:
    """The options for reading and importing a file.

    Attributes:
        dry_run: whether the import only validates the rows, without changing any member.
        on_existing: what the import changes about active members. With ``skip``, the import only
            adds missing fields and tags. With ``update``, the import also replaces existing values.
        date_order: whether the day or the month comes first in ambiguous dates such as 03/04/2025.
        status_values: maps values in consent columns to the statuses that the owner has assigned.
        encoding: the encoding of the file, one of ``encodings.ENCODINGS``, or ``None`` to detect
            the encoding.
        sheet: the name of the sheet in a workbook, or ``None`` for the first visible sheet with an
            address column.
    """

    dry_run: bool = False
    on_existing: str = "skip"
    mapping: Mapping[str, str] | None = None
    kind: ImportKind = ImportKind.MEMBERS
    create_fields: bool = False
    date_order: DateOrder | None = None
    status_values: Mapping[str, str] | None = None
    encoding: str | None = None
    sheet: str | None = None

    @property
    def stored_values(self) -> dict[str, Any]:
        mapping = dict(self.mapping) if self.mapping else None
        status_values = dict(self.status_values) if self.status_values else None
        return {**vars(self), "mapping": mapping, "status_values": status_values}

    @property
    def job_kind(self) -> JobKind:
        return IMPORT_FILE if self.kind is ImportKind.MEMBERS else IMPORT_SUPPRESSIONS


def read_encoding(name: str | None) -> str | None:
    """Return the normalised name of an encoding, or raise ``import.encoding``."""
    if name is None:
        return None
    encoding = encodings.read_encoding(name)
    if encoding is None:
        raise errors.IMPORT_ENCODING(encodings=", ".join(encodings.ENCODINGS))
    return encoding


def read_mapping(text: str | None, error: ErrorType) -> dict[str, str] | None:
    """Parse the JSON text of the option ``mapping``.

    Raises ``error`` unless the text is a JSON object whose values are strings.
    """
    if text is None:
        return None
    parsed = _parse_strings(text)
    if parsed is None:
        raise error()
    return parsed


def read_status_values(text: str | None) -> dict[str, str] | None:
    """Parse the JSON text of the option ``status_values``. Raises ``import.status_values``."""
    if text is None:
        return None
    parsed = _parse_strings(text)
    if parsed is None or len(parsed) > MAX_STATUS_VALUES:
        reason = (
            f"The object can have at most {MAX_STATUS_VALUES} values, and all of them must be "
            "strings."
        )
        raise errors.IMPORT_STATUS_VALUES(reason=reason)
    check_status_values(parsed)
    return parsed


def _parse_strings(text: str) -> dict[str, str] | None:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(parsed, dict) or not all(
        isinstance(part, str) and "\0" not in part for pair in parsed.items() for part in pair
    ):
        return None
    return parsed
