import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from PIL import Image

from services.attachments.images import outcome, still
from services.attachments.images.animation import Animation, Disposal, Frame
from services.attachments.images.colours import COLOUR_CHUNKS, profile_of
from services.attachments.images.outcome import truncated, unreadable
from services.attachments.images.still import DECODER_ERRORS, displayable, open_only

# A file whose chunks are out of order, or whose frames have no pixels or lie outside of the
# canvas, is faulty. As in browsers, the frames before the first fault are shown. Without one the
# still image is, which every PNG has. How many frames the file claims counts for nothing.

_FRAME_CONTROL = struct.Struct(">4xIIIIHHBB")
_ANIMATION_HEADER = struct.Struct(">II")
_NUMBER_BYTES = 4


def _fits(body: bytes, canvas: tuple[int, int], *, is_still: bool) -> bool:
    if len(body) != _FRAME_CONTROL.size:
        return False
    width, height, left, top, *_ = _FRAME_CONTROL.unpack(body)
    if is_still:
        return (width, height, left, top) == (*canvas, 0, 0)
    is_inside = left + width <= canvas[0] and top + height <= canvas[1]
    return bool(min(width, height) > 0 and is_inside)


SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE, _KEY = b"PLTE", b"tRNS"
# A wrong checksum in one of these chunks makes the PNG unreadable. All other chunks are ignored if
# their checksum is wrong.
_ESSENTIAL = (b"IHDR", _PALETTE, b"IDAT")
_ANIMATED = (b"fcTL", b"fdAT")
_BEFORE_PIXELS = {_PALETTE, _KEY, *COLOUR_CHUNKS}
# Maps a PNG's colour type to the size of its `tRNS` chunk, which contains one transparent colour.
# In PNGs with a palette, the chunk has one alpha value per palette entry instead.
_KEY_BYTES = {0: 2, 2: 6}
_DISPOSALS = {1: Disposal.CLEAR, 2: Disposal.RESTORE}
_GREY, _TRUE_COLOUR, _INDEXED, _GREY_WITH_ALPHA = 0, 2, 3, 4
_DEEP = 16
_SIDES = struct.Struct(">II")
_HEADER_BYTES = 13
# The keyword, a flag and a method: XMP is not compressed, so that programs find it. Two texts that
# end with a zero come before its own.
_XMP = b"XML:com.adobe.xmp\0\0\0"


@dataclass(slots=True)
class _Cut:
    """A frame as the file has it: its control chunk, and the pieces of its compressed pixels."""

    control: bytes
    pieces: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    """The parts of a PNG file that were read so far.

    Attributes:
        shared: the palette chunk and the transparency chunk, by name. All frames use these chunks.
        colours: the chunks that describe the colour space, by name.
        profile: the ICC profile that was built from ``colours``.
        metadata: may say how the picture is turned, named as in the `info` of Pillow's images.
        plays: how often the frames are shown, 0 for ever.
        cuts: the frames so far; the last one may lack pixels, after a fault for good.
        is_faulty: whether a fault was found, after which no chunk of a frame counts.
    """

    header: bytes = b""
    shared: dict[bytes, bytes] = field(default_factory=dict)
    colours: dict[bytes, bytes] = field(default_factory=dict)
    profile: bytes | None = None
    data: list[bytes] = field(default_factory=list)
    metadata: dict[str, bytes] = field(default_factory=dict)
    is_animated: bool = False
    plays: int = 0
    cuts: list[_Cut] = field(default_factory=list)
    is_faulty: bool = False
    next_number: int = 0

    @property
    def size(self) -> tuple[int, int]:
        width, height = _SIDES.unpack_from(self.header or bytes(_SIDES.size))
        return width, height

    @property
    def colour_type(self) -> int:
        return self.header[9] if self.header else _TRUE_COLOUR


def read(data: bytes) -> Animation:
    """Read the frames, within the bounds, and decode nothing; a PNG without motion has one.

    The decoder gets only the chunks that make pixels, so that text and the like can't fail it. The
    last frame before the fault of a broken animation is the only one that is decoded.
    """
    found = _Found()
    for name, body in _chunks(data):
        if body is not None:
            _note(found, name, body)
        elif name in _ANIMATED:
            found.is_faulty = True
    if not found.data or not found.header:
        raise unreadable("The PNG has no header or no image data.")
    if found.colour_type == _INDEXED and not found.shared.get(_PALETTE):
        raise unreadable("The PNG has no palette before its image data.")
    is_grey = found.colour_type in (_GREY, _GREY_WITH_ALPHA)
    found.profile = profile_of(found.colours, is_grey=is_grey)
    width, height = found.size
    frames = [_frame(found, cut) for cut in found.cuts if cut.pieces]
    outcome.check_animation(len(frames), width * height, "APNG")
    if found.is_faulty and frames:
        try:
            frames[-1].decode()
        except DECODER_ERRORS:
            frames.pop()
    plays = found.plays
    if not frames:
        decode = partial(_decode, found, found.header, found.data)
        frames, plays = [Frame(0, 0, Fraction(0), Disposal.KEEP, over=False, decode=decode)], 1
    return Animation(width, height, frames, plays, still.in_metadata(found.metadata))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the name and the body of each chunk. If the checksum is wrong, the body is ``None``."""
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        stop = at + 8 + length
        if stop + 4 > len(data):
            break
        name, checksum = data[at + 4 : at + 8], int.from_bytes(data[stop : stop + 4], "big")
        is_intact = zlib.crc32(memoryview(data)[at + 4 : stop]) == checksum
        if not is_intact and name in _ESSENTIAL:
            raise unreadable(f"The checksum of the PNG chunk at byte {at:,} is wrong.")
        yield name, data[at + 8 : stop] if is_intact else None
        if name == b"IEND":
            return
        at = stop + 4
    raise truncated(f"The PNG's {len(data):,} bytes stop before its end chunk.")


def _note(found: _Found, name: bytes, body: bytes) -> None:
    if name == b"IHDR":
        if found.header or len(body) != _HEADER_BYTES:
            raise unreadable("The PNG's header chunk is not 13 bytes, once.")
        found.header = body
        outcome.check_canvas(*found.size, "PNG header")
    elif name == b"IDAT":
        found.data.append(body)
        if found.cuts and not found.is_faulty:
            # The still image is a frame too, if a control chunk precedes it.
            found.cuts[-1].pieces.append(body)
    elif name == b"acTL":
        _note_animation(found, body)
    elif name in _ANIMATED:
        if found.is_animated and not found.is_faulty:
            found.is_faulty = not _note_frame(found, name, body)
    elif name in _BEFORE_PIXELS:
        # Ignore chunks about colours and transparency after the pixels, as browsers do.
        if not found.data:
            _note_meaning(found, name, body)
    else:
        _note_metadata(found.metadata, name, body)


def _note_meaning(found: _Found, name: bytes, body: bytes) -> None:
    """Store a chunk about transparency or colours.

    If a PNG has several chunks with the same name, only the first one is used.
    """
    if name == _KEY:
        _note_key(found, body)
    elif name == _PALETTE:
        found.shared.setdefault(name, body)
    elif _PALETTE not in found.shared:
        found.colours.setdefault(name, body)


def _note_key(found: _Found, body: bytes) -> None:
    """Store a `tRNS` chunk: the transparent colour, or the alpha values of the palette.

    An invalid chunk is ignored, as in browsers.
    """
    if _KEY in found.shared:
        return
    if found.colour_type == _INDEXED:
        is_valid = 0 < len(body) <= len(found.shared.get(_PALETTE, b"")) // 3
    else:
        is_valid = len(body) == _KEY_BYTES.get(found.colour_type)
        # Some encoders write garbage into the bits above the picture's bit depth, so clear those
        # bits.
        levels = struct.unpack(f">{len(body) // 2}H", body) if is_valid else ()
        depth = found.header[8] if found.header else _DEEP
        body = struct.pack(f">{len(levels)}H", *(level & 2**depth - 1 for level in levels))
    if is_valid:
        found.shared[_KEY] = body


def _note_animation(found: _Found, body: bytes) -> None:
    # Use the first animation header (`acTL` chunk), and ignore headers with a wrong length.
    if not (found.data or found.is_animated) and len(body) == _ANIMATION_HEADER.size:
        frames, plays = _ANIMATION_HEADER.unpack(body)
        found.is_animated, found.plays = frames > 0, min(plays, outcome.MAX_PLAYS)


def _note_frame(found: _Found, name: bytes, body: bytes) -> bool:
    """Take a frame's control chunk or pixels; False if it is out of order or does not fit."""
    number, found.next_number = found.next_number, found.next_number + 1
    if body[:_NUMBER_BYTES] != number.to_bytes(_NUMBER_BYTES, "big"):
        return False
    before = found.cuts[-1] if found.cuts else None
    if name == b"fdAT":
        if before is not None:
            before.pieces.append(body[_NUMBER_BYTES:])
        return before is not None
    is_whole = before is None or bool(before.pieces)
    if not is_whole or not _fits(body, found.size, is_still=not found.data):
        return False
    found.cuts.append(_Cut(body))
    outcome.check_frame_count(len(found.cuts), "APNG")
    return True


def _note_metadata(metadata: dict[str, bytes], name: bytes, body: bytes) -> None:
    if name == b"eXIf" and body:
        metadata.setdefault("exif", body)
    elif name == b"iTXt" and body.startswith(_XMP):
        metadata["xmp"] = body.removeprefix(_XMP).split(b"\0", 2)[-1]


def _frame(found: _Found, cut: _Cut) -> Frame:
    _, _, left, top, delay, per, dispose, blend = _FRAME_CONTROL.unpack(cut.control)
    return Frame(
        left=left,
        top=top,
        duration_ms=Fraction(delay * 1000, per or 100),
        disposal=_DISPOSALS.get(dispose, Disposal.KEEP),
        over=blend == 1,
        decode=partial(_decode, found, cut.control[4:12] + found.header[8:], cut.pieces),
    )


def _decode(found: _Found, header: bytes, pieces: Sequence[bytes]) -> Image.Image:
    """Decode one frame as a PNG of one image."""
    data = ((b"IDAT", piece) for piece in pieces)
    chunks = [(b"IHDR", header), *found.shared.items(), *data, (b"IEND", b"")]
    parts = [SIGNATURE]
    for name, body in chunks:
        checksum = zlib.crc32(body, zlib.crc32(name))
        parts += [len(body).to_bytes(4, "big"), name, body, checksum.to_bytes(4, "big")]
    with open_only(b"".join(parts), "PNG") as image:
        image.load()
        # Pillow brings pixels to eight bits, and leaves the transparent colour in the file's depth.
        depth, colour, key = header[8], header[9], image.info.get("transparency")
        if colour == _GREY and depth in (2, 4) and isinstance(key, int):
            image.info["transparency"] = key * 255 // (2**depth - 1)
        elif colour == _TRUE_COLOUR and depth == _DEEP and isinstance(key, tuple):
            image.info["transparency"] = tuple(level >> 8 for level in key)
        if found.profile is not None:
            image.info["icc_profile"] = found.profile
        return displayable(image)
