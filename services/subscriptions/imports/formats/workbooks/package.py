"""Checks the zip archive of a workbook, finds the sheets and formats in it, and edits parts.

The archive is never extracted, so the names of its parts are never used as file paths. Links to
other files are never followed.
"""

import io
import posixpath
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from services.subscriptions.imports.formats.workbooks.number_formats import (
    ZeroFormat,
    parse_zero_format,
)
from services.subscriptions.imports.formats.workbooks.refusals import (
    MAX_SHEET_NAME_CHARACTERS,
    RefusalKind,
    WorkbookRefused,
    refuse_damaged,
    refuse_large,
)
from services.subscriptions.imports.formats.workbooks.xml_parts import (
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
_WORKBOOK_RELATIONSHIP = "/officeDocument"
_WORKBOOK = "xl/workbook.xml"
_RELATIONSHIPS = "xl/_rels/workbook.xml.rels"
_STYLES = "xl/styles.xml"
_SHARED_TEXTS = "xl/sharedstrings.xml"
# The library reads these parts under fixed names, even if the relationships name other parts. The
# keys are the ends of the types of the relationships.
_FIXED_PARTS = {"/sharedstrings": "xl/sharedStrings.xml", "/styles": _STYLES}
_PACKAGE_RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE_RELATIONSHIPS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_ENCRYPTED_FLAG = 0x1
# The content type of an XML workbook ends with one of these texts. Templates and workbooks with
# macros are read like other workbooks. Macros are never run.
_XML_WORKBOOKS = (
    "spreadsheetml.sheet.main+xml",
    "spreadsheetml.template.main+xml",
    "ms-excel.sheet.macroenabled.main+xml",
    "ms-excel.template.macroenabled.main+xml",
)
_STYLE_SECTIONS = {"numFmts", "cellStyleXfs", "cellXfs", "cellStyles", "dxfs"}
_BINARY_WORKBOOK = "ms-excel.sheet.binary.macroenabled.main"


class SheetEntry(NamedTuple):
    """A sheet in a workbook. ``part`` is the name of the XML part with the cells of the sheet."""

    name: str
    is_visible: bool
    part: str


class WorkbookPackage:
    """The zip archive of a workbook.

    Attributes:
        has_placeholders: whether the program that wrote the file may have stored 0 for formulas,
            because it doesn't calculate. Such a file asks for a calculation when it is opened.
    """

    def __init__(self, file: io.BytesIO) -> None:
        self._open(file)
        self._check_content_types()
        main_part = self._find_main_part()
        if main_part != _WORKBOOK:
            self._open(self._move_main_part(main_part))
        self.has_placeholders = False
        self.sheets = self._find_sheets()
        self._format_codes = self._find_format_codes()
        sheet_parts = {sheet.part for sheet in self.sheets}
        for name in self._parts:
            if name not in sheet_parts and name != _STYLES and _is_loaded(name):
                parser = _create_text_parser() if name == _SHARED_TEXTS else None
                scan_part(self.open_part(name), parser)

    def _open(self, file: io.BytesIO) -> None:
        self.file = file
        try:
            self._archive = zipfile.ZipFile(file)
        except ZIP_ERRORS:
            raise refuse_damaged("its zip directory is invalid") from None
        self._parts = self._check_entries()

    def find_zero_format(self, style: str) -> ZeroFormat | None:
        code = self._format_codes.get(style)
        return None if code is None else parse_zero_format(code)

    def open_part(self, name: str) -> IO[bytes]:
        """Open a part of the workbook. Raises ``WorkbookRefused`` if the part is missing."""
        entry = self._get_entry(name)
        try:
            return self._archive.open(entry)
        except ZIP_ERRORS:
            raise refuse_damaged("its compressed data is invalid") from None

    def edit_part(self, name: str, edits: Sequence[Edit]) -> io.BytesIO:
        edited = io.BytesIO(self.file.getvalue())
        old_entry = self._parts[_normalise(name)]
        with zipfile.ZipFile(edited, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            _remove_entries(archive, [old_entry.filename])
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

    def _find_main_part(self) -> str:
        paths: list[str] = []

        def add_path(_: str, attributes: dict[str, str]) -> None:
            if attributes.get("Type", "").lower().endswith(_WORKBOOK_RELATIONSHIP.lower()):
                paths.append(_resolve("", attributes.get("Target", "")))

        list_elements(self.open_part(_ROOT_RELATIONSHIPS), add_path)
        if len(paths) != 1:
            raise refuse_damaged("it has no main part, or several")
        return paths[0]

    def _move_main_part(self, main_part: str) -> io.BytesIO:
        """Return a copy of the archive in which the main part has the name ``_WORKBOOK``.

        The library reads the main part, the texts and the styles only under fixed names.
        """
        folder, _, file = main_part.rpartition("/")
        old_relationships = f"{folder}/_rels/{file}.rels".removeprefix("/")
        relationships: list[str] = []
        new_names = {main_part: _WORKBOOK}

        def add_relationship(name: str, attributes: dict[str, str]) -> None:
            type_ = attributes.get("Type", "")
            if name != "Relationship" or attributes.get("TargetMode") == "External":
                return
            part = _resolve(folder, attributes.get("Target", ""))
            for end, fixed_name in _FIXED_PARTS.items():
                if type_.lower().endswith(end):
                    new_names[part] = fixed_name
            target = new_names.get(part) or self._get_entry(part).filename
            relationships.append(
                f"<Relationship Id={quoteattr(attributes.get('Id', ''))} Type={quoteattr(type_)}"
                f" Target={quoteattr('/' + target)}/>"
            )

        list_elements(self.open_part(old_relationships), add_relationship)
        written = {
            _RELATIONSHIPS: "".join(relationships),
            _ROOT_RELATIONSHIPS: f'<Relationship Id="rId1" Type="{_OFFICE_RELATIONSHIPS}'
            f'{_WORKBOOK_RELATIONSHIP}" Target="{_WORKBOOK}"/>',
        }
        replaced = {*new_names, *map(_normalise, (*written, *new_names.values()))}
        moved = io.BytesIO(self.file.getvalue())
        with zipfile.ZipFile(moved, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            _remove_entries(
                archive, [self._parts[name].filename for name in replaced if name in self._parts]
            )
            for part, new_name in new_names.items():
                with self.open_part(part) as old, archive.open(new_name, "w") as new:
                    shutil.copyfileobj(old, new)
            for name, content in written.items():
                archive.writestr(
                    name,
                    f'<Relationships xmlns="{_PACKAGE_RELATIONSHIPS}">{content}</Relationships>',
                )
        moved.seek(0)
        return moved

    def _find_format_codes(self) -> Mapping[str, str]:
        if _STYLES not in self._parts:
            return {}
        codes: dict[str, str] = {}
        cell_formats: list[str] = []
        section = ""

        def add_format(name: str, attributes: dict[str, str]) -> None:
            nonlocal section
            if name == "numFmt" and section == "numFmts":
                code = attributes.get("formatCode", "")
                if "0" in code:
                    codes[attributes.get("numFmtId", "")] = code
            elif name == "xf" and section == "cellXfs":
                cell_formats.append(attributes.get("numFmtId", ""))
            elif name in _STYLE_SECTIONS:
                section = name

        list_elements(self.open_part(_STYLES), add_format)
        return {str(style): codes[id_] for style, id_ in enumerate(cell_formats) if id_ in codes}

    def _get_entry(self, name: str) -> zipfile.ZipInfo:
        entry = self._parts.get(_normalise(name))
        if entry is None:
            raise refuse_damaged("a part is missing")
        return entry

    def _find_sheets(self) -> list[SheetEntry]:
        targets: dict[str, str] = {}
        sheets: list[SheetEntry] = []

        def add_target(name: str, attributes: dict[str, str]) -> None:
            if name == "Relationship":
                targets[attributes.get("Id", "")] = attributes.get("Target", "")

        def add_sheet(name: str, attributes: dict[str, str]) -> None:
            if name == "calcPr" and attributes.get("fullCalcOnLoad") in ("1", "true"):
                self.has_placeholders = True
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


def _create_text_parser() -> Any:
    """Return a parser for the shared texts that refuses text that the library would lose."""
    element = ""

    def start_element(name: str, _: dict[str, str]) -> None:
        nonlocal element
        element = remove_prefix(name)

    def end_element(_: str) -> None:
        nonlocal element
        element = ""

    def check_text(text: str) -> None:
        if element != "t" and not text.isspace():
            raise refuse_damaged("a shared text is outside of its element")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    parser.CharacterDataHandler = check_text
    return parser


def _normalise(name: str) -> str:
    return name.replace("\\", "/").removeprefix("/").lower()


def _resolve(folder: str, target: str) -> str:
    return _normalise(posixpath.normpath(posixpath.join("/", folder, target.replace("\\", "/"))))


def _remove_entries(archive: zipfile.ZipFile, names: Sequence[str]) -> None:
    for name in names:
        del archive.NameToInfo[name]
    archive.filelist = list(archive.NameToInfo.values())


def _find_part(target: str) -> str:
    name = _normalise(target)
    return name if target.startswith("/") else f"xl/{name}"


def _is_loaded(name: str) -> bool:
    """Return whether the library may load a part, such as the part with the styles."""
    folder, _, file = name.rpartition("/")
    return folder in ("", "xl", "_rels", "xl/_rels") and file.endswith((".xml", ".rels"))
