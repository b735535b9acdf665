"""Separates the pixels of a WebP file from its metadata."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.attachments.images import outcome
from services.attachments.images.outcome import create_truncated_error, create_unreadable_error
from services.attachments.images.still import Picture

_FRAME_HEADER_BYTES = 16
_DISPOSAL_FLAG = 1
# The byte offset of the flags in the extended header of a WebP file.
_FLAGS_OFFSET = 20
_ALPHA_FLAG = 0x10
_MOTION_FLAG = 0x02
_PIXEL_CHUNKS = (b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L")
# Maps the names of metadata chunks to the keys of Pillow's ``Image.info``.
_METADATA_NAMES = {b"EXIF": "exif", b"XMP ": "xmp", b"ICCP": "icc_profile"}


@dataclass(slots=True)
class WebpFile(Picture):
    """The contents of a WebP file, as far as they have been read.

    Attributes:
        durations: the durations of the frames in milliseconds, or an empty list for a still image.
        lossless: whether all pictures in the file are lossless.
    """

    width: int = 0
    height: int = 0
    durations: list[int] = field(default_factory=list)
    plays: int = 0
    pictures: int = 0
    lossless: bool = True


def read_webp(data: bytes) -> WebpFile:
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise create_truncated_error(
            f"The RIFF header declares {end:,} bytes, but the file has only {len(data):,}."
        )
    file = WebpFile()
    pieces = list[bytes]()
    # Like browsers, ignore the metadata of a file without an extended header (`VP8X`).
    is_extended = data[12:16] == b"VP8X"
    for name, body in _iterate_chunks(data, 12, end):
        if name in _PIXEL_CHUNKS:
            pieces.append(_build_chunk(name, body))
        if name == b"VP8X":
            file.width = _u24(body, 4) + 1
            file.height = _u24(body, 7) + 1
        elif name == b"ANIM":
            file.plays = int.from_bytes(body[4:6], "little")
        elif name == b"ANMF":
            file.durations.append(_u24(body, 12))
            outcome.check_frame_count(len(file.durations), "WebP")
            for inner_name, inner_body in _iterate_chunks(body, 16, len(body)):
                _record_picture(file, inner_name, inner_body)
        elif name in _METADATA_NAMES and is_extended:
            file.metadata.setdefault(_METADATA_NAMES[name], body)
        else:
            _record_picture(file, name, body)
    if not file.pictures:
        raise create_unreadable_error("The WebP contains no image chunk.")
    outcome.check_canvas(file.width, file.height, "WebP header")
    outcome.check_animation(len(file.durations), file.width * file.height, "WebP")
    file.data = _build_chunk(b"RIFF", b"WEBP" + b"".join(pieces))
    return file


def _build_chunk(name: bytes, body: bytes) -> bytes:
    if name == b"VP8X":
        # Clear the metadata flags, because the metadata chunks are removed.
        body = bytes([body[0] & (_ALPHA_FLAG | _MOTION_FLAG)]) + body[1:] if body else body
    return name + len(body).to_bytes(4, "little") + body + bytes(len(body) % 2)


def _record_picture(file: WebpFile, name: bytes, body: bytes) -> None:
    if name == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif name == b"VP8 ":
        bits = int.from_bytes(body[6:10], "little")
        size = bits & 0x3FFF, bits >> 16 & 0x3FFF
    else:
        return
    if not file.pictures and not file.width:
        # If a WebP file has no extended header, the first picture determines the size of the image.
        file.width, file.height = size
    file.pictures += 1
    file.lossless &= name == b"VP8L"


def declare_alpha(data: bytes) -> bytes:
    """Set the alpha flag of an encoded animation if parts of its canvas are transparent.

    libwebp crops each frame to its visible part, and sets the alpha flag only if a visible part
    isn't opaque. Without the alpha flag, some viewers paint the rest of the canvas black.
    """
    chunks = _iterate_chunks(data, 12, len(data))
    frame_headers = [body[:_FRAME_HEADER_BYTES] for name, body in chunks if name == b"ANMF"]
    if not frame_headers:
        return data
    first_header = frame_headers[0]
    is_canvas_covered = first_header[:6] == bytes(6) and first_header[6:12] == data[24:30]
    if is_canvas_covered and not any(header[15] & _DISPOSAL_FLAG for header in frame_headers):
        return data
    flags = bytes([data[_FLAGS_OFFSET] | _ALPHA_FLAG])
    return data[:_FLAGS_OFFSET] + flags + data[_FLAGS_OFFSET + 1 :]


def _iterate_chunks(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    while at + 8 <= end:
        start = at + 8
        stop = start + int.from_bytes(data[at + 4 : start], "little")
        if stop > end and data[at : at + 4] in _METADATA_NAMES:
            # The WebP file is complete according to its RIFF header, so only the length of the
            # metadata chunk is wrong.
            return
        if stop > end:
            raise create_truncated_error(
                f"The WebP chunk at byte {at:,} extends beyond the end of the file."
            )
        yield data[at : at + 4], data[start:stop]
        at = stop + (stop - start) % 2


def _u24(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 3], "little")
