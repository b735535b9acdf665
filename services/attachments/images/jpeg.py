"""Separates the pixels of a JPEG file from its metadata."""

import re

from services.attachments.images.outcome import create_truncated_error
from services.attachments.images.still import Picture

# Finds the markers in a JPEG, except restart markers. In the pixel data of a JPEG, each 0xFF byte
# is followed by a zero byte or belongs to a restart marker.
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
# Lists the JPEG segments without which a decoder can't interpret the colours of the pixels. Maps
# the marker of a JPEG segment to the segment's prefix and minimum length. A JPEG segment that is
# shorter than its minimum length is broken and therefore dropped.
_NEEDED_SEGMENTS = {_APP0: (b"JFIF\0", 14), _APP14: (b"Adobe", 12)}
_EXIF_PREFIX = b"Exif\0\0"
_XMP_PREFIX = b"http://ns.adobe.com/xap/1.0/\0"
_PROFILE_PREFIX = b"ICC_PROFILE\0"


def read_jpeg(data: bytes) -> Picture:
    """Separate the pixels of the first picture in a JPEG file from the file's metadata.

    Raises ``UnreadableImage`` if the JPEG's end marker is missing, because libjpeg would draw the
    missing part in grey.
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
                # Long EXIF data in a JPEG is split into several segments, and each segment repeats
                # the EXIF prefix.
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
    """Join the pieces of an ICC profile in a JPEG.

    Returns ``None`` if a piece of the ICC profile is missing. Each piece of an ICC profile begins
    with the number of the piece and the total number of pieces, in one byte each.
    """
    ordered = sorted(pieces, key=lambda piece: piece[:1])
    heads = [(number, len(pieces)) for number in range(1, len(pieces) + 1)]
    if not pieces or [tuple(piece[:2]) for piece in ordered] != heads:
        return None
    return b"".join(piece[2:] for piece in ordered)
