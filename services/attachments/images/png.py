"""Reads the frames of PNG and APNG files.

An animation is faulty if its chunks are out of order, or if a frame is empty or exceeds the canvas.
Like browsers, Pressroom keeps the frames before the first fault. If an animation has no valid
frame, Pressroom uses the still image that every PNG contains. The frame count in the animation's
header is ignored.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from PIL import Image

from services.attachments.images import outcome, still
from services.attachments.images.animation import Animation, Disposal, Frame
from services.attachments.images.colours import COLOUR_CHUNKS, build_profile
from services.attachments.images.outcome import create_truncated_error, create_unreadable_error
from services.attachments.images.still import DECODER_ERRORS, convert_to_srgb, open_image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE = b"PLTE"
_TRANSPARENCY = b"tRNS"
# The essential chunks of a PNG. If an essential chunk has a wrong checksum, the PNG is unreadable.
# A PNG chunk with a wrong checksum is ignored if the chunk isn't essential.
_ESSENTIAL_CHUNKS = (b"IHDR", _PALETTE, b"IDAT")
_FRAME_CHUNKS = (b"fcTL", b"fdAT")
_CHUNKS_BEFORE_PIXELS = {_PALETTE, _TRANSPARENCY, *COLOUR_CHUNKS}
# The size of the `tRNS` chunk by colour type, for PNGs with a single transparent colour. In a PNG
# with a palette, the `tRNS` chunk contains an alpha value for each palette entry.
_TRANSPARENCY_BYTES = {0: 2, 2: 6}
_DISPOSALS = {1: Disposal.CLEAR, 2: Disposal.RESTORE}
# The colour types in the header of a PNG.
_GREY = 0
_TRUE_COLOUR = 2
_INDEXED = 3
_GREY_WITH_ALPHA = 4
_MAX_DEPTH = 16
_HEADER_BYTES = 13
_NUMBER_BYTES = 4
_SIDES = struct.Struct(">II")
_FRAME_CONTROL = struct.Struct(">4xIIIIHHBB")
_ANIMATION_HEADER = struct.Struct(">II")
# The beginning of an uncompressed text chunk with XMP data. Two null-terminated strings precede the
# XMP data.
_XMP_PREFIX = b"XML:com.adobe.xmp\0\0\0"


@dataclass(slots=True)
class _FrameChunks:
    control: bytes
    pieces: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _PngFile:
    """The contents of a PNG file, as far as they have been read.

    Attributes:
        shared: the palette and transparency chunks by name, which apply to all frames.
        metadata: the EXIF and XMP data, which may contain the orientation, by their names in
            Pillow's `Image.info`.
        plays: how many times the animation is played, or 0 for endless repetition.
        is_faulty: whether an animation chunk is invalid, so that all further ones are ignored.
    """

    header: bytes = b""
    shared: dict[bytes, bytes] = field(default_factory=dict)
    colours: dict[bytes, bytes] = field(default_factory=dict)
    profile: bytes | None = None
    data: list[bytes] = field(default_factory=list)
    metadata: dict[str, bytes] = field(default_factory=dict)
    is_animated: bool = False
    plays: int = 0
    frames: list[_FrameChunks] = field(default_factory=list)
    is_faulty: bool = False
    next_number: int = 0

    @property
    def size(self) -> tuple[int, int]:
        width, height = _SIDES.unpack_from(self.header or bytes(_SIDES.size))
        return width, height

    @property
    def colour_type(self) -> int:
        return self.header[9] if self.header else _TRUE_COLOUR


def read_png(data: bytes) -> Animation:
    """Split a PNG into frames, and check the limits for animations.

    Frames are decoded only when they are drawn. Pillow gets only the chunks that describe pixels,
    so that broken text chunks can't make the decoding fail. In a faulty animation, the last frame
    is decoded immediately, to check whether its pixels are complete.
    """
    file = _PngFile()
    for name, body in _iterate_chunks(data):
        if body is not None:
            _record_chunk(file, name, body)
        elif name in _FRAME_CHUNKS:
            file.is_faulty = True
    if not file.data or not file.header:
        raise create_unreadable_error("The PNG has no header or no image data.")
    if file.colour_type == _INDEXED and not file.shared.get(_PALETTE):
        raise create_unreadable_error("The PNG has no palette before its image data.")
    is_grey = file.colour_type in (_GREY, _GREY_WITH_ALPHA)
    file.profile = build_profile(file.colours, is_grey=is_grey)
    width, height = file.size
    frames = [_build_frame(file, chunks) for chunks in file.frames if chunks.pieces]
    outcome.check_animation(len(frames), width * height, "APNG")
    if file.is_faulty and frames:
        try:
            frames[-1].decode()
        except DECODER_ERRORS:
            frames.pop()
    plays = file.plays
    if not frames:
        decode_still = partial(_decode_frame, file, file.header, file.data)
        frames = [Frame(0, 0, Fraction(0), Disposal.KEEP, over=False, decode=decode_still)]
        plays = 1
    return Animation(width, height, frames, plays, still.read_orientation(file.metadata))


def _iterate_chunks(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the name and the body of each chunk of a PNG.

    The body is ``None`` if the checksum is wrong. If the chunk is essential, an error is raised
    instead.
    """
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        stop = at + 8 + length
        if stop + 4 > len(data):
            break
        name = data[at + 4 : at + 8]
        checksum = int.from_bytes(data[stop : stop + 4], "big")
        is_intact = zlib.crc32(memoryview(data)[at + 4 : stop]) == checksum
        if not is_intact and name in _ESSENTIAL_CHUNKS:
            raise create_unreadable_error(f"The checksum of the PNG chunk at byte {at:,} is wrong.")
        yield name, data[at + 8 : stop] if is_intact else None
        if name == b"IEND":
            return
        at = stop + 4
    raise create_truncated_error(
        f"The PNG is incomplete: its {len(data):,} bytes contain no end chunk."
    )


def _record_chunk(file: _PngFile, name: bytes, body: bytes) -> None:
    if name == b"IHDR":
        if file.header or len(body) != _HEADER_BYTES:
            raise create_unreadable_error("The PNG must have exactly one header chunk of 13 bytes.")
        file.header = body
        outcome.check_canvas(*file.size, "PNG header")
    elif name == b"IDAT":
        file.data.append(body)
        if file.frames and not file.is_faulty:
            # If a control chunk precedes the still image of a PNG, the still image is the first
            # frame of the animation.
            file.frames[-1].pieces.append(body)
    elif name == b"acTL":
        _record_animation_header(file, body)
    elif name in _FRAME_CHUNKS:
        if file.is_animated and not file.is_faulty:
            file.is_faulty = not _record_frame_chunk(file, name, body)
    elif name in _CHUNKS_BEFORE_PIXELS:
        # Like browsers, ignore colour and transparency chunks after the pixel data.
        if not file.data:
            _record_colour_chunk(file, name, body)
    else:
        _record_metadata(file.metadata, name, body)


def _record_colour_chunk(file: _PngFile, name: bytes, body: bytes) -> None:
    """Store a chunk about transparency or colours, unless an earlier one has the same name."""
    if name == _TRANSPARENCY:
        _record_transparency(file, body)
    elif name == _PALETTE:
        file.shared.setdefault(name, body)
    elif _PALETTE not in file.shared:
        file.colours.setdefault(name, body)


def _record_transparency(file: _PngFile, body: bytes) -> None:
    """Like browsers, ignore an invalid `tRNS` chunk."""
    if _TRANSPARENCY in file.shared:
        return
    if file.colour_type == _INDEXED:
        is_valid = 0 < len(body) <= len(file.shared.get(_PALETTE, b"")) // 3
    else:
        is_valid = len(body) == _TRANSPARENCY_BYTES.get(file.colour_type)
        # Clear the bits of the transparent colour that exceed the bit depth, because some encoders
        # fill these bits with garbage.
        levels = struct.unpack(f">{len(body) // 2}H", body) if is_valid else ()
        depth = file.header[8] if file.header else _MAX_DEPTH
        body = struct.pack(f">{len(levels)}H", *(level & 2**depth - 1 for level in levels))
    if is_valid:
        file.shared[_TRANSPARENCY] = body


def _record_animation_header(file: _PngFile, body: bytes) -> None:
    # Use only the first `acTL` chunk that has the right length.
    if not (file.data or file.is_animated) and len(body) == _ANIMATION_HEADER.size:
        frame_count, plays = _ANIMATION_HEADER.unpack(body)
        file.is_animated = frame_count > 0
        file.plays = min(plays, outcome.MAX_PLAYS)


def _record_frame_chunk(file: _PngFile, name: bytes, body: bytes) -> bool:
    """Store a control chunk or a pixel chunk of a frame.

    Return false if a frame's chunk is out of order, or if the frame exceeds the canvas.
    """
    number = file.next_number
    file.next_number += 1
    if body[:_NUMBER_BYTES] != number.to_bytes(_NUMBER_BYTES, "big"):
        return False
    last_frame = file.frames[-1] if file.frames else None
    if name == b"fdAT":
        if last_frame is not None:
            last_frame.pieces.append(body[_NUMBER_BYTES:])
        return last_frame is not None
    has_pixels = last_frame is None or bool(last_frame.pieces)
    if not has_pixels or not _fits_canvas(body, file.size, is_still=not file.data):
        return False
    file.frames.append(_FrameChunks(body))
    outcome.check_frame_count(len(file.frames), "APNG")
    return True


def _fits_canvas(body: bytes, canvas: tuple[int, int], *, is_still: bool) -> bool:
    if len(body) != _FRAME_CONTROL.size:
        return False
    width, height, x, y, *_ = _FRAME_CONTROL.unpack(body)
    if is_still:
        return (width, height, x, y) == (*canvas, 0, 0)
    is_inside = x + width <= canvas[0] and y + height <= canvas[1]
    return bool(min(width, height) > 0 and is_inside)


def _record_metadata(metadata: dict[str, bytes], name: bytes, body: bytes) -> None:
    if name == b"eXIf" and body:
        metadata.setdefault("exif", body)
    elif name == b"iTXt" and body.startswith(_XMP_PREFIX):
        metadata["xmp"] = body.removeprefix(_XMP_PREFIX).split(b"\0", 2)[-1]


def _build_frame(file: _PngFile, chunks: _FrameChunks) -> Frame:
    _, _, x, y, delay, per, dispose, blend = _FRAME_CONTROL.unpack(chunks.control)
    header = chunks.control[4:12] + file.header[8:]
    return Frame(
        left=x,
        top=y,
        duration_ms=Fraction(delay * 1000, per or 100),
        disposal=_DISPOSALS.get(dispose, Disposal.KEEP),
        over=blend == 1,
        decode=partial(_decode_frame, file, header, chunks.pieces),
    )


def _decode_frame(file: _PngFile, header: bytes, pieces: Sequence[bytes]) -> Image.Image:
    data = ((b"IDAT", piece) for piece in pieces)
    chunks = [(b"IHDR", header), *file.shared.items(), *data, (b"IEND", b"")]
    parts = [SIGNATURE]
    for name, body in chunks:
        checksum = zlib.crc32(body, zlib.crc32(name))
        parts += [len(body).to_bytes(4, "big"), name, body, checksum.to_bytes(4, "big")]
    with open_image(b"".join(parts), "PNG") as image:
        image.load()
        # Scale the transparent colour to 8 bits, because Pillow scales only the pixels.
        depth = header[8]
        colour_type = header[9]
        key = image.info.get("transparency")
        if colour_type == _GREY and depth in (2, 4) and isinstance(key, int):
            image.info["transparency"] = key * 255 // (2**depth - 1)
        elif colour_type == _TRUE_COLOUR and depth == _MAX_DEPTH and isinstance(key, tuple):
            image.info["transparency"] = tuple(level >> 8 for level in key)
        if file.profile is not None:
            image.info["icc_profile"] = file.profile
        return convert_to_srgb(image)
