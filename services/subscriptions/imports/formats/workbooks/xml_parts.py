"""Parses the XML parts of a workbook as streams.

The parser rejects document type declarations, because a declaration can define entities. An entity
can expand to a huge text.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple
from xml.parsers import expat

from services.subscriptions.imports.formats.workbooks.refusals import (
    WorkbookRefused,
    refuse_damaged,
)

READ_BYTES = 64 * 1024
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    LookupError,
    OverflowError,
    EOFError,
    NotImplementedError,  # zipfile raises it if the archive needs a newer version of the format.
)
_UTF_16_CHARACTER_BYTES = 2


class Edit(NamedTuple):
    """A replacement of bytes in a part. ``start`` and ``end`` are offsets in bytes."""

    start: int
    end: int
    text: bytes


# A function that receives the name of an element without its prefix, and the element's attributes.
StartElement = Callable[[str, dict[str, str]], None]


def parse_part(content: IO[bytes], parser: Any) -> Iterator[None]:
    """Parse a part of a workbook, and yield after each piece of the part.

    Raises ``WorkbookRefused`` if the part is damaged or contains a document type declaration.
    """
    parser.StartDoctypeDeclHandler = _refuse_document_type
    try:
        is_start = True
        while piece := content.read(READ_BYTES):
            if is_start and b"\0" in piece[: 2 * _UTF_16_CHARACTER_BYTES]:
                # The library would read the part as empty.
                raise refuse_damaged("its XML is in UTF-16")
            is_start = False
            parser.Parse(piece, False)
            yield
        parser.Parse(b"", True)
    except expat.ExpatError:
        raise refuse_damaged("its XML is invalid") from None
    except ZIP_ERRORS:
        raise refuse_damaged("its compressed data is invalid") from None


def list_elements(content: IO[bytes], start_element: StartElement) -> None:
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: start_element(
        remove_prefix(name), attributes
    )
    scan_part(content, parser)


def scan_part(content: IO[bytes], parser: Any = None) -> None:
    for _ in parse_part(content, parser or expat.ParserCreate()):
        pass


def remove_prefix(name: str) -> str:
    return name.rpartition(":")[2]


def _refuse_document_type(*_: object) -> WorkbookRefused:
    raise refuse_damaged("it contains a document type declaration")
