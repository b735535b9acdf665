from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from PIL import Image

from services.media.images import bounds
from services.media.images.animation import Animation, Disposal, Frame
from services.media.images.outcome import truncated, unreadable
from services.media.images.still import decode

_DISPOSALS = {2: Disposal.CLEAR, 3: Disposal.RESTORE}
_CONTROL, _APPLICATION = 0xF9, 0xFF
_LOOP_BLOCKS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


@dataclass(frozen=True, slots=True)
class _Picture:
    """One image with its descriptor; its data are the bytes from `start` to `stop`."""

    left: int
    top: int
    width: int
    height: int
    control: bytes
    descriptor_flags: int
    palette: bytes
    start: int
    stop: int


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self.at : self.at + count]
        if len(taken) < count:
            raise truncated(f"The GIF stops at byte {len(self._data):,}, inside a block.")
        self.at += count
        return taken

    def skip_blocks(self) -> bytes:
        """Skip data blocks up to their end, and return the first."""
        first = b""
        while size := self.take(1)[0]:
            block = self.take(size)
            first = first or block
        return first


def read(data: bytes) -> Animation:
    """Read the frames, within the bounds, and decode nothing; a GIF without motion has one."""
    reader = _Reader(data)
    header = reader.take(13)
    palette = reader.take(_palette_size(header[10]))
    pictures, plays = _pictures(reader, palette)
    if not pictures:
        raise unreadable("The GIF has no image.")
    # The canvas is the screen, or the first picture's extent where that is larger, as in browsers.
    width = max(_u16(header, 6), pictures[0].left + pictures[0].width)
    height = max(_u16(header, 8), pictures[0].top + pictures[0].height)
    bounds.check_canvas(width, height, "GIF header")
    area = max(width * height, *(each.width * each.height for each in pictures))
    bounds.check_animation(len(pictures), area, "GIF")
    frames = [
        Frame(
            left=picture.left,
            top=picture.top,
            duration_ms=Fraction(_u16(picture.control, 1) * 10),
            disposal=_DISPOSALS.get(picture.control[0] >> 2 & 7, Disposal.KEEP),
            over=True,
            decode=partial(_decode, data, picture),
        )
        for picture in pictures
    ]
    return Animation(width, height, frames, plays)


def _pictures(reader: _Reader, palette: bytes) -> tuple[list[_Picture], int]:
    pictures: list[_Picture] = []
    plays = 1
    control = b""
    while (introducer := reader.take(1)) != b";":
        if introducer == b"!":
            label = reader.take(1)[0]
            if label == _CONTROL:
                control = reader.skip_blocks()
            elif label == _APPLICATION:
                name = reader.take(reader.take(1)[0])
                body = reader.skip_blocks()
                # The loop count n says to repeat the frames n times, so to show them n + 1 times.
                if name in _LOOP_BLOCKS and body[:1] == b"\x01":
                    again = _u16(body, 1)
                    plays = min(again + 1, bounds.MAX_PLAYS) if again else 0  # 0: for ever
            else:
                reader.skip_blocks()
        elif introducer == b",":
            pictures.append(_picture(reader, palette, control))
            bounds.check_frame_count(len(pictures), "GIF")
            control = b""
        elif introducer != b"\0":
            raise unreadable(f"The GIF has no block at byte {reader.at - 1:,}.")
    return pictures, plays


def _picture(reader: _Reader, palette: bytes, control: bytes) -> _Picture:
    descriptor = reader.take(9)
    flags = descriptor[8]
    own = reader.take(_palette_size(flags))
    start = reader.at
    reader.take(1)
    reader.skip_blocks()
    left, top, width, height = (_u16(descriptor, at) for at in (0, 2, 4, 6))
    bounds.check_canvas(width, height, f"GIF image at byte {start:,}")
    control = control[:4].ljust(4, b"\0")
    return _Picture(left, top, width, height, control, flags, own or palette, start, reader.at)


def _decode(data: bytes, picture: _Picture) -> Image.Image:
    """Decode one picture as a GIF of one image."""
    size = picture.width.to_bytes(2, "little") + picture.height.to_bytes(2, "little")
    flags = picture.descriptor_flags & 0x40
    if picture.palette:
        flags |= 0x80 | (len(picture.palette) // 3).bit_length() - 2
    control = b"!\xf9\x04" + picture.control + b"\0"
    still = (
        b"GIF89a" + size + b"\0\0\0" + control + b"," + bytes(4) + size + bytes([flags])
        + picture.palette + data[picture.start : picture.stop] + b";"
    )  # fmt: skip
    return decode(still, "GIF")


def _palette_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")
