import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from PIL import Image

from services.media.images import bounds
from services.media.images.animation import Animation, Disposal, Frame
from services.media.images.colours import displayable
from services.media.images.outcome import truncated, unreadable
from services.media.images.still import open_only, orientation_in

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# These chunks change the meaning of pixels, so each frame that is cut out gets a copy of them.
_SHARED = (b"PLTE", b"tRNS", b"iCCP")
_DISPOSALS = {1: Disposal.CLEAR, 2: Disposal.RESTORE}
_GREY, _TRUE_COLOUR = 0, 2
_DEEP = 16
_SIDES = struct.Struct(">II")
_HEADER_BYTES = 13
_FRAME_CONTROL = struct.Struct(">4xIIIIHHBB")


@dataclass(slots=True)
class _Found:
    header: bytes = b""
    shared: list[tuple[bytes, bytes]] = field(default_factory=list)
    claimed: int | None = None
    plays: int = 0
    # Of each frame its control chunk and the pieces of its data.
    cuts: list[tuple[bytes, list[bytes]]] = field(default_factory=list)
    sequence: int = 0
    data: list[bytes] = field(default_factory=list)
    exif: bytes = b""


def read(data: bytes) -> Animation:
    """Read the frames, within the bounds, and decode nothing; a PNG without motion has one.

    The decoder gets only the chunks that make pixels, so that text and the like can't fail it.
    """
    found = _Found()
    for name, body in _chunks(data):
        _note(found, name, body)
    if not found.data or not found.header:
        raise unreadable("The PNG has no header or no image data.")
    width, height = _SIDES.unpack_from(found.header)
    orientation = orientation_in(found.exif)
    if not found.claimed:
        decode = partial(_decode, found.header, found.shared, found.data)
        frame = Frame(0, 0, Fraction(0), Disposal.KEEP, over=False, decode=decode)
        return Animation(width, height, [frame], 1, orientation)
    if len(found.cuts) != found.claimed:
        raise unreadable(f"The APNG claims {found.claimed} frames and has {len(found.cuts)}.")
    bounds.check_animation(len(found.cuts), width * height, "APNG")
    frames = [_frame(found, *cut) for cut in found.cuts]
    return Animation(width, height, frames, found.plays, orientation)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        stop = at + 8 + length
        if stop + 4 > len(data):
            break
        name, checksum = data[at + 4 : at + 8], int.from_bytes(data[stop : stop + 4], "big")
        if zlib.crc32(memoryview(data)[at + 4 : stop]) != checksum:
            raise unreadable(f"The checksum of the PNG chunk at byte {at:,} is wrong.")
        yield name, data[at + 8 : stop]
        if name == b"IEND":
            return
        at = stop + 4
    raise truncated(f"The PNG's {len(data):,} bytes stop before its end chunk.")


def _note(found: _Found, name: bytes, body: bytes) -> None:
    if name == b"IHDR":
        if found.header or len(body) != _HEADER_BYTES:
            raise unreadable("The PNG's header chunk is not 13 bytes, once.")
        found.header = body
        width, height = _SIDES.unpack_from(body)
        bounds.check_canvas(width, height, "PNG header")
    elif name in _SHARED:
        found.shared.append((name, body))
    elif name == b"eXIf":
        found.exif = found.exif or body
    elif name == b"acTL" and not found.data:
        found.claimed, plays = _SIDES.unpack_from(body)
        found.plays = min(plays, bounds.MAX_PLAYS)
        bounds.check_frame_count(found.claimed or 0, "APNG header")
    elif name == b"fcTL" and found.claimed:
        _expect_sequence(found, body)
        found.cuts.append((body, []))
        bounds.check_frame_count(len(found.cuts), "APNG")
    elif name == b"fdAT" and found.claimed:
        _expect_sequence(found, body)
        _add_data(found, body[4:])
    elif name == b"IDAT":
        # Data before the first control chunk are the default image, which is not a frame.
        found.data.append(body)
        if found.cuts:
            _add_data(found, body)


def _expect_sequence(found: _Found, body: bytes) -> None:
    if body[:4] != found.sequence.to_bytes(4, "big"):
        raise unreadable(f"The APNG's chunk number {found.sequence} is missing or out of order.")
    found.sequence += 1


def _add_data(found: _Found, piece: bytes) -> None:
    if not found.cuts:
        raise unreadable("The APNG has frame data before its first frame.")
    found.cuts[-1][1].append(piece)


def _frame(found: _Found, control: bytes, pieces: list[bytes]) -> Frame:
    if not pieces:
        raise unreadable("An APNG frame has no image data.")
    width, height, left, top, delay, per, dispose, blend = _FRAME_CONTROL.unpack_from(control)
    bounds.check_canvas(width, height, "APNG frame")
    canvas_width, canvas_height = _SIDES.unpack_from(found.header)
    if left + width > canvas_width or top + height > canvas_height:
        raise unreadable("An APNG frame reaches outside its canvas.")
    return Frame(
        left=left,
        top=top,
        duration_ms=Fraction(delay * 1000, per or 100),
        disposal=_DISPOSALS.get(dispose, Disposal.KEEP),
        over=blend == 1,
        decode=partial(_decode, control[4:12] + found.header[8:], found.shared, pieces),
    )


def _decode(
    header: bytes, shared: Sequence[tuple[bytes, bytes]], pieces: Sequence[bytes]
) -> Image.Image:
    """Decode one frame as a PNG of one image."""
    chunks = [(b"IHDR", header), *shared, *((b"IDAT", piece) for piece in pieces), (b"IEND", b"")]
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
        return displayable(image)
