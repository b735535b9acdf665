"""Checks the zip archive of a workbook, finds the sheets in it, and edits parts.

The archive is never extracted, so the names of its parts are never used as file paths. Links to
other files are never followed.
"""

import io
import shutil
import zipfile
from collections.abc import Sequence
from typing import IO, NamedTuple

from services.subscriptions.imports.workbooks.refusals import (
    MAX_SHEET_NAME_CHARACTERS,
    RefusalKind,
    WorkbookRefused,
    refuse_damaged,
    refuse_large,
)
from services.subscriptions.imports.workbooks.xml_parts import (
    READ_BYTES,
    ZIP_ERRORS,
    Edit,
    list_elements,
    remove_prefix,
    scan_part,
)

MAX_EXPANDED_BYTES = 1024**3
MAX_SHEETS = 1_000

CONTENT_TYPES = "[content_types].xml"
_ROOT_RELATIONSHIPS = "_rels/.rels"
# The end of the type of the relationship that leads to the workbook.
_WORKBOOK_RELATIONSHIP = "/officedocument"
_WORKBOOK = "xl/workbook.xml"
_RELATIONSHIPS = "xl/_rels/workbook.xml.rels"
_ENCRYPTED_FLAG = 0x1
# The content type of an XML workbook ends with one of these texts. Templates and workbooks with
# macros are read like other workbooks. Macros are never run.
_XML_WORKBOOKS = (
    "spreadsheetml.sheet.main+xml",
    "spreadsheetml.template.main+xml",
    "ms-excel.sheet.macroenabled.main+xml",
    "ms-excel.template.macroenabled.main+xml",
)
_BINARY_WORKBOOK = "ms-excel.sheet.binary.macroenabled.main"


class SheetEntry(NamedTuple):
    """A sheet in a workbook. ``part`` is the name of the XML part with the cells of the sheet."""

    name: str
    is_visible: bool
    part: str


class WorkbookPackage:
    """The zip archive of a workbook.

    Attributes:
        sheets: the sheets in the order of the workbook, including hidden sheets and chart sheets.
    """

    def __init__(self, file: io.BytesIO) -> None:
        """Open the archive. Raises ``WorkbookRefused``."""
        self._file = file
        try:
            self._archive = zipfile.ZipFile(file)
        except ZIP_ERRORS:
            raise refuse_damaged("its zip directory is invalid") from None
        self._parts = self._check_entries()
        self._check_content_types()
        self._check_workbook_path()
        self.sheets = self._find_sheets()
        sheet_parts = {sheet.part for sheet in self.sheets}
        for name in self._parts:
            if name not in sheet_parts and _is_loaded(name):
                scan_part(self.open_part(name))

    def open_part(self, name: str) -> IO[bytes]:
        """Open a part of the workbook. Raises ``WorkbookRefused`` if the part is missing."""
        entry = self._parts.get(_normalise(name))
        if entry is None:
            raise refuse_damaged("a part is missing")
        try:
            return self._archive.open(entry)
        except ZIP_ERRORS:
            raise refuse_damaged("its compressed data is invalid") from None

    def edit_part(self, name: str, edits: Sequence[Edit]) -> io.BytesIO:
        """Return a copy of the archive in which a part is edited.

        ``edits`` are in the order of the part.
        """
        edited = io.BytesIO(self._file.getvalue())
        old_entry = self._parts[_normalise(name)]
        with zipfile.ZipFile(edited, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            # The directory of the copy no longer lists the old part.
            del archive.NameToInfo[old_entry.filename]
            archive.filelist = list(archive.NameToInfo.values())
            with self.open_part(name) as old, archive.open(old_entry.filename, "w") as new:
                for edit in edits:
                    while size := min(edit.start - old.tell(), READ_BYTES):
                        new.write(old.read(size))
                    new.write(edit.text)
                    old.seek(edit.end)
                shutil.copyfileobj(old, new)
        edited.seek(0)
        return edited

    def _check_entries(self) -> dict[str, zipfile.ZipInfo]:
        """Return the parts by their normalised names."""
        parts: dict[str, zipfile.ZipInfo] = {}
        expanded_bytes = 0
        for entry in self._archive.infolist():
            if entry.flag_bits & _ENCRYPTED_FLAG:
                raise WorkbookRefused(RefusalKind.ENCRYPTED)
            if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise refuse_damaged("it is compressed in an unusual way")
            name = _normalise(entry.filename)
            if name in parts:
                raise refuse_damaged("it contains two parts with the same name")
            parts[name] = entry
            expanded_bytes += entry.file_size
        if expanded_bytes > MAX_EXPANDED_BYTES:
            raise refuse_large("it expands to more than 1 GB")
        return parts

    def _check_content_types(self) -> None:
        """Refuse all Office files except workbooks that consist of XML."""
        content_types: list[str] = []

        def add_type(_: str, attributes: dict[str, str]) -> None:
            content_types.append(attributes.get("ContentType", "").lower())

        list_elements(self.open_part(CONTENT_TYPES), add_type)
        if any(type_.endswith(_XML_WORKBOOKS) for type_ in content_types):
            return
        if any(type_.endswith(_BINARY_WORKBOOK) for type_ in content_types):
            raise WorkbookRefused(RefusalKind.OTHER_SPREADSHEET, "a binary Excel workbook (.xlsb)")
        raise WorkbookRefused(
            RefusalKind.UNKNOWN_FORMAT, "an Office document without a workbook, such as .docx"
        )

    def _check_workbook_path(self) -> None:
        """Refuse a workbook in an unusual place, because the library would read another part."""
        paths: list[str] = []

        def add_path(_: str, attributes: dict[str, str]) -> None:
            if attributes.get("Type", "").lower().endswith(_WORKBOOK_RELATIONSHIP):
                paths.append(_normalise(attributes.get("Target", "")))

        list_elements(self.open_part(_ROOT_RELATIONSHIPS), add_path)
        if paths != [_WORKBOOK]:
            raise refuse_damaged("its main part is in an unusual place")

    def _find_sheets(self) -> list[SheetEntry]:
        targets: dict[str, str] = {}
        sheets: list[SheetEntry] = []

        def add_target(name: str, attributes: dict[str, str]) -> None:
            if name == "Relationship":
                targets[attributes.get("Id", "")] = attributes.get("Target", "")

        def add_sheet(name: str, attributes: dict[str, str]) -> None:
            if name != "sheet":
                return
            id_ = next(
                (
                    value
                    for key, value in attributes.items()
                    if ":" in key and remove_prefix(key) == "id"
                ),
                "",
            )
            title = attributes.get("name", "")[:MAX_SHEET_NAME_CHARACTERS]
            is_visible = attributes.get("state", "visible") == "visible"
            sheets.append(SheetEntry(title, is_visible, _find_part(targets.get(id_, ""))))
            if len(sheets) > MAX_SHEETS:
                raise refuse_large(f"it has more than {MAX_SHEETS:,} sheets")

        list_elements(self.open_part(_RELATIONSHIPS), add_target)
        list_elements(self.open_part(_WORKBOOK), add_sheet)
        return sheets


def _normalise(name: str) -> str:
    return name.replace("\\", "/").removeprefix("/").lower()


def _find_part(target: str) -> str:
    """Return the normalised name of the part that a relationship of the workbook points to."""
    name = _normalise(target)
    return name if target.startswith("/") else f"xl/{name}"


def _is_loaded(name: str) -> bool:
    """Return whether the library may load a part, such as the part with the styles."""
    folder, _, file = name.rpartition("/")
    return folder in ("", "xl", "_rels", "xl/_rels") and file.endswith((".xml", ".rels"))
