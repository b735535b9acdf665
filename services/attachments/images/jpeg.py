"""Separates the pixels of a JPEG file from its metadata."""

import re

from services.attachments.images.outcome import create_truncated_error
from services.attachments.images.still import Picture

# Matches all JPEG markers except restart markers, which are part of the pixel data.
_MARKER_PATTERN = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_START = 0xD8
_END = 0xD9
_TEMPORARY = 0x01
_APP0 = 0xE0
_APP1 = 0xE1
_APP2 = 0xE2
_APP14 = 0xEE
_APP15 = 0xEF
_COMMENT = 0xFE
# The prefix and the minimum length of each JPEG segment that a decoder needs to interpret the
# colours. A JPEG segment below its minimum length is broken and is dropped.
_NEEDED_SEGMENTS = {_APP0: (b"JFIF\0", 14), _APP14: (b"Adobe", 12)}
_EXIF_PREFIX = b"Exif\0\0"
_XMP_PREFIX = b"http://ns.adobe.com/xap/1.0/\0"
_PROFILE_PREFIX = b"ICC_PROFILE\0"


def read_jpeg(data: bytes) -> Picture:
    """Split a JPEG file into the pixels of its first picture and the metadata.

    Raises ``UnreadableImage`` for a truncated file, whose missing part libjpeg would draw in grey.
    """
    metadata: dict[str, bytes] = {}
    pieces = list[bytes]()
    profile_pieces = list[bytes]()
    start = 0
    at = 0
    while match := _MARKER_PATTERN.search(data, at):
        marker = match.group(1)[0]
        at = match.end()
        if marker == _END:
            if profile := _join_profile(profile_pieces):
                metadata["icc_profile"] = profile
            return Picture(b"".join([*pieces, data[start:at]]), metadata)
        if marker in (_START, _TEMPORARY):
            continue
        body_start = at + 2
        at += max(2, int.from_bytes(data[at : at + 2], "big"))
        body = data[body_start:at]
        if _is_droppable(marker, body):
            pieces.append(data[start : match.start()])
            start = at
            if marker == _APP2 and body.startswith(_PROFILE_PREFIX):
                profile_pieces.append(body.removeprefix(_PROFILE_PREFIX))
            elif marker == _APP1 and body.startswith(_EXIF_PREFIX):
                # Long EXIF data is split into several segments, which all begin with the EXIF
                # prefix.
                earlier_exif = metadata.get("exif", _EXIF_PREFIX)
                metadata["exif"] = earlier_exif + body.removeprefix(_EXIF_PREFIX)
            elif marker == _APP1 and body.startswith(_XMP_PREFIX):
                metadata["xmp"] = body.removeprefix(_XMP_PREFIX)
    raise create_truncated_error(
        f"The JPEG is incomplete: its {len(data):,} bytes contain no end-of-image marker."
    )


def _is_droppable(marker: int, body: bytes) -> bool:
    prefix, min_length = _NEEDED_SEGMENTS.get(marker, (None, 0))
    is_needed = prefix is not None and body.startswith(prefix) and len(body) >= min_length
    return (_APP0 <= marker <= _APP15 or marker == _COMMENT) and not is_needed


def _join_profile(pieces: list[bytes]) -> bytes | None:
    """Join the pieces of an ICC profile, or return ``None`` if a piece is missing.

    The first two bytes of a piece are its number and the total number of pieces.
    """
    ordered = sorted(pieces, key=lambda piece: piece[:1])
    heads = [(number, len(pieces)) for number in range(1, len(pieces) + 1)]
    if not pieces or [tuple(piece[:2]) for piece in ordered] != heads:
        return None
    return b"".join(piece[2:] for piece in ordered)
