import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import starmap
from operator import mul

from PIL import Image

from services.attachments.images import outcome, png
from services.attachments.images.animation import Animation, Disposal, Frame, first_view
from services.attachments.images.outcome import UnreadableImage, truncated, unreadable
from services.attachments.images.still import DECODER_ERRORS, Picture, decode

_DISPOSALS = {2: Disposal.CLEAR, 3: Disposal.RESTORE}
_CONTROL, _APPLICATION = 0xF9, 0xFF
_LOOP_BLOCKS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        if len(taken) < count:
            raise truncated(f"The GIF stops at byte {len(self.data):,}, inside a block.")
        self.at += count
        return taken

    def skip_blocks(self) -> bytes:
        """Skip data blocks up to their end, and return the first."""
        first = b""
        while size := self.take(1)[0]:
            block = self.take(size)
            first = first or block
        return first


def read_gif(data: bytes) -> Animation:
    """Read the frames, within the bounds, and decode nothing; a GIF without motion has one."""
    reader = _Reader(data)
    header = reader.take(13)
    palette = reader.take(_palette_size(header[10]))
    frames, sizes = [], []
    plays, control = 1, b""
    while (introducer := reader.take(1)) != b";":
        if introducer == b"!":
            label = reader.take(1)[0]
            if label == _CONTROL:
                control = reader.skip_blocks()
            elif label == _APPLICATION:
                size = reader.take(1)[0]
                name = reader.take(size)
                body = reader.skip_blocks() if size else b""
                # The loop count n says to repeat the frames n times, so to show them n + 1 times.
                if name in _LOOP_BLOCKS and body[:1] == b"\x01":
                    again = _u16(body, 1)
                    plays = min(again + 1, outcome.MAX_PLAYS) if again else 0  # 0: for ever
            else:
                reader.skip_blocks()
        elif introducer == b",":
            frame, extent = _frame(reader, palette, control[:4].ljust(4, b"\0"))
            frames.append(frame)
            sizes.append(extent)
            outcome.check_frame_count(len(frames), "GIF")
            control = b""
        elif introducer != b"\0" and frames:
            break  # Keep the frames before an invalid block, as browsers do.
        elif introducer != b"\0":
            raise unreadable(f"The GIF has no block at byte {reader.at - 1:,}.")
    if not frames:
        raise unreadable("The GIF has no image.")
    # The canvas is the screen, or the first picture's extent where that is larger, as in browsers.
    width = max(_u16(header, 6), frames[0].left + sizes[0][0])
    height = max(_u16(header, 8), frames[0].top + sizes[0][1])
    outcome.check_canvas(width, height, "GIF header")
    area = max(width * height, *starmap(mul, sizes))
    outcome.check_animation(len(frames), area, "GIF")
    return Animation(width, height, frames, plays)


def _frame(reader: _Reader, palette: bytes, control: bytes) -> tuple[Frame, tuple[int, int]]:
    descriptor = reader.take(9)
    palette = reader.take(_palette_size(descriptor[8])) or palette
    start = reader.at
    reader.take(1)
    reader.skip_blocks()
    left, top, width, height = (_u16(descriptor, at) for at in (0, 2, 4, 6))
    outcome.check_canvas(width, height, f"GIF image at byte {start:,}")
    stop, size = reader.at, descriptor[4:8]
    flags = descriptor[8] & 0x40
    if palette:
        flags |= 0x80 | (len(palette) // 3).bit_length() - 2

    def decoded() -> Image.Image:
        still = (
            b"GIF89a" + size + b"\0\0\0!\xf9\x04" + control + b"\0," + bytes(4) + size
            + bytes([flags]) + palette + reader.data[start:stop] + b";"
        )  # fmt: skip
        return decode(still, "GIF")

    disposal = _DISPOSALS.get(control[0] >> 2 & 7, Disposal.KEEP)
    duration_ms = Fraction(_u16(control, 1) * 10)
    return Frame(left, top, duration_ms, disposal, over=True, decode=decoded), (width, height)


def _palette_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


_MAX_BYTE = 255
_BITS_WITH_ALPHA = 32
_COUNT = struct.Struct("<4xH")
_PLACE = struct.Struct("<8xII")
_PNG_HEADER = struct.Struct(">16xIIBB7x")
_BITMAP_HEADER = struct.Struct("<IiiHH24x")
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


# A hostile icon can list thousands of large images. This maximum number of images limits the
# decoding time.
_MAX_DECODED_ENTRIES = 8


@dataclass(frozen=True, slots=True)
class _Entry:
    """An image in an icon: its width, height, bits per pixel, and position in the file."""

    width: int
    height: int
    bits: int
    offset: int
    size: int


def decode_best(data: bytes) -> Image.Image:
    """Decode the best image: the one with the most pixels.

    Among images of the same size, the one with the most bits per pixel is the best. If the best
    image can't be decoded, the next best one is tried. If no image can be decoded, the error of the
    best image is raised.
    """
    entries, failures = list[_Entry](), list[Exception]()
    for offset, size in dict.fromkeys(_places(data)):
        try:
            entries.append(_entry(data, offset, size))
        except UnreadableImage as error:
            failures.append(error)
    entries.sort(key=lambda entry: (entry.width * entry.height, entry.bits), reverse=True)
    for entry in entries[:_MAX_DECODED_ENTRIES]:
        try:
            return _decode_entry(entry, data[entry.offset : entry.offset + entry.size])
        except (UnreadableImage, *DECODER_ERRORS) as error:
            # Drop the traceback, because it would keep the image in memory.
            failures.append(error.with_traceback(None))
    raise failures[0]


def _decode_entry(entry: _Entry, body: bytes) -> Image.Image:
    if body.startswith(png.SIGNATURE):
        return first_view(png.read(body))
    # A bitmap is decoded as an icon of one image, so that Pillow applies its transparency mask.
    sides = (side if side <= _MAX_BYTE else 0 for side in (entry.width, entry.height))
    directory = struct.pack("<HHHBBBBHHII", 0, 1, 1, *sides, 0, 0, 1, entry.bits, len(body), 22)
    image = decode(directory + body, "ICO")
    is_blank = image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0)
    if entry.bits == _BITS_WITH_ALPHA and is_blank:
        # Icons older than alpha leave its byte empty, and are not meant to be invisible.
        image.putalpha(255)
    return image


def _places(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offset and the size of each image in an icon.

    Raises an error if the file was cut short.
    """
    if len(data) < _COUNT.size:
        raise truncated("The ICO stops before its directory.")
    (count,) = _COUNT.unpack_from(data)
    if not count:
        raise unreadable("The ICO's directory is empty.")
    if len(data) < 6 + 16 * count:
        raise truncated(f"The ICO stops inside its directory of {count:,} images.")
    for number in range(count):
        size, offset = _PLACE.unpack_from(data, 6 + 16 * number)
        if offset + size > len(data):
            raise truncated(f"The ICO's image at byte {offset:,} runs past the end of the file.")
        yield offset, size


def _entry(data: bytes, offset: int, size: int) -> _Entry:
    # Use the width and height in the image's own header. The icon's directory stores each of these
    # numbers in only one byte, and is often wrong.
    head = data[offset : offset + min(size, _BITMAP_HEADER.size)]
    if head.startswith(png.SIGNATURE):
        if len(head) < _PNG_HEADER.size:
            raise truncated("The ICO's PNG stops inside its header.")
        width, height, depth, colour = _PNG_HEADER.unpack_from(head)
        bits = depth * _PNG_CHANNELS.get(colour, 1)
    elif len(head) < _BITMAP_HEADER.size:
        raise truncated("The ICO's bitmap stops inside its header.")
    else:
        header_size, width, doubled, _, bits = _BITMAP_HEADER.unpack_from(head)
        if header_size < _BITMAP_HEADER.size or bits not in (1, 4, 8, 16, 24, 32):
            raise unreadable("The ICO holds neither a PNG nor a bitmap.")
        height = abs(doubled) // 2
    outcome.check_canvas(width, height, f"ICO image at byte {offset:,}")
    return _Entry(width, height, bits, offset, size)


# In coded data a stuffed zero or a restart marker follows 0xFF; any other byte makes a marker.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_START, _END, _TEMPORARY = 0xD8, 0xD9, 0x01
_APP0, _APP1, _APP2, _APP14, _APP15, _COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
# The JPEG decoder needs these segments to interpret the pixels' colours. Maps the marker of each
# segment to its prefix and its minimum length. A shorter segment is broken, so it is dropped.
_NEEDED_APPS = {_APP0: (b"JFIF\0", 14), _APP14: (b"Adobe", 12)}
_EXIF, _JPEG_XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
_PROFILE = b"ICC_PROFILE\0"


def read_jpeg(data: bytes) -> Picture:
    """Separate the first picture's pixels from its metadata.

    Raises an error if the end marker is missing, because libjpeg would paint the missing part grey.
    """
    metadata: dict[str, bytes] = {}
    pieces, profile = list[bytes](), list[bytes]()
    start = at = 0
    while found := _MARKER.search(data, at):
        marker = found.group(1)[0]
        at = found.end()
        if marker == _END:
            if joined := _joined_profile(profile):
                metadata["icc_profile"] = joined
            return Picture(b"".join([*pieces, data[start:at]]), metadata)
        if marker in (_START, _TEMPORARY):
            continue
        segment, at = at + 2, at + max(2, int.from_bytes(data[at : at + 2], "big"))
        body = data[segment:at]
        if _is_droppable(marker, body):
            pieces.append(data[start : found.start()])
            start = at
            if marker == _APP2 and body.startswith(_PROFILE):
                profile.append(body.removeprefix(_PROFILE))
            elif marker == _APP1 and body.startswith(_EXIF):
                # Long EXIF data is split into several segments, and each of them repeats the
                # prefix.
                metadata["exif"] = metadata.get("exif", _EXIF) + body.removeprefix(_EXIF)
            elif marker == _APP1 and body.startswith(_JPEG_XMP):
                metadata["xmp"] = body.removeprefix(_JPEG_XMP)
    raise truncated(f"The JPEG's {len(data):,} bytes stop before its end-of-image marker.")


def _is_droppable(marker: int, body: bytes) -> bool:
    prefix, least = _NEEDED_APPS.get(marker, (None, 0))
    is_needed = prefix is not None and body.startswith(prefix) and len(body) >= least
    return (_APP0 <= marker <= _APP15 or marker == _COMMENT) and not is_needed


def _joined_profile(pieces: list[bytes]) -> bytes | None:
    """Join the pieces of an ICC profile; return ``None`` if a piece is missing.

    Each piece begins with two bytes: its number, counted from 1, and the total number of pieces.
    """
    ordered = sorted(pieces, key=lambda piece: piece[:1])
    heads = [(number, len(pieces)) for number in range(1, len(pieces) + 1)]
    if not pieces or [tuple(piece[:2]) for piece in ordered] != heads:
        return None
    return b"".join(piece[2:] for piece in ordered)


_FRAME_HEAD = 16
_DISPOSED = 1
_FLAGS = 20  # the offset of the flags in the extended header, which is always the first chunk
_ALPHA, _MOTION = 0x10, 0x02
_PIXEL_CHUNKS = (b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L")
_METADATA = {b"EXIF": "exif", b"XMP ": "xmp", b"ICCP": "icc_profile"}


@dataclass(slots=True)
class WebpFile(Picture):
    """A file as far as its chunks were read; it is lossless if all its pictures are VP8L."""

    width: int = 0
    height: int = 0
    durations: list[int] = field(default_factory=list)  # milliseconds; empty for a still
    plays: int = 0
    pictures: int = 0
    lossless: bool = True


def read_webp(data: bytes) -> WebpFile:
    """Read the chunks, within the bounds, and decode nothing."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise truncated(f"The RIFF header gives {end:,} bytes; the file has {len(data):,}.")
    found, pieces = WebpFile(), list[bytes]()
    # Ignore metadata in a WebP file without an extended header (`VP8X`), as browsers do.
    is_extended = data[12:16] == b"VP8X"
    for name, body in _chunks(data, 12, end):
        if name in _PIXEL_CHUNKS:
            pieces.append(_webp_chunk(name, body))
        if name == b"VP8X":
            found.width, found.height = _u24(body, 4) + 1, _u24(body, 7) + 1
        elif name == b"ANIM":
            found.plays = int.from_bytes(body[4:6], "little")
        elif name == b"ANMF":
            found.durations.append(_u24(body, 12))
            outcome.check_frame_count(len(found.durations), "WebP")
            for inner, part in _chunks(body, 16, len(body)):
                _note_picture(found, inner, part)
        elif name in _METADATA and is_extended:
            found.metadata.setdefault(_METADATA[name], body)
        else:
            _note_picture(found, name, body)
    if not found.pictures:
        raise unreadable("The WebP has no picture chunk.")
    outcome.check_canvas(found.width, found.height, "WebP header")
    outcome.check_animation(len(found.durations), found.width * found.height, "WebP")
    found.data = _webp_chunk(b"RIFF", b"WEBP" + b"".join(pieces))
    return found


def _webp_chunk(name: bytes, body: bytes) -> bytes:
    if name == b"VP8X":
        # The metadata chunks are dropped, so clear the flags that announce them.
        body = bytes([body[0] & (_ALPHA | _MOTION)]) + body[1:] if body else body
    return name + len(body).to_bytes(4, "little") + body + bytes(len(body) % 2)


def with_alpha_declared(data: bytes) -> bytes:
    """Declare alpha in an encoded animation if parts of its canvas are transparent.

    libwebp cuts each frame to its visible part. If that part is opaque, libwebp declares no alpha,
    and viewers that trust the declaration paint the rest of the canvas black.
    """
    chunks = _chunks(data, 12, len(data))
    frames = [body[:_FRAME_HEAD] for name, body in chunks if name == b"ANMF"]
    if not frames:
        return data
    covered = frames[0][:6] == bytes(6) and frames[0][6:12] == data[24:30]
    if covered and not any(head[15] & _DISPOSED for head in frames):
        return data
    return data[:_FLAGS] + bytes([data[_FLAGS] | _ALPHA]) + data[_FLAGS + 1 :]


def _chunks(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    while at + 8 <= end:
        start = at + 8
        stop = start + int.from_bytes(data[at + 4 : start], "little")
        if stop > end and data[at : at + 4] in _METADATA:
            # The file itself is complete, so only the length of this metadata chunk is wrong.
            return
        if stop > end:
            raise truncated(f"The WebP chunk at byte {at:,} runs past the end of the file.")
        yield data[at : at + 4], data[start:stop]
        at = stop + (stop - start) % 2


def _note_picture(found: WebpFile, name: bytes, body: bytes) -> None:
    if name == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif name == b"VP8 ":
        bits = int.from_bytes(body[6:10], "little")
        size = bits & 0x3FFF, bits >> 16 & 0x3FFF
    else:
        return
    if not found.pictures and not found.width:
        # Without an extended header the first picture has the size.
        found.width, found.height = size
    found.pictures += 1
    found.lossless &= name == b"VP8L"


def _u24(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 3], "little")
