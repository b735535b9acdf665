from dataclasses import dataclass
from fractions import Fraction
from itertools import starmap
from operator import mul

from PIL import Image

from services.media.images import bounds
from services.media.images.animation import Animation, Disposal, Frame
from services.media.images.outcome import truncated, unreadable
from services.media.images.still import decode

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


def read(data: bytes) -> Animation:
    """Read the frames, within the bounds, and decode nothing; a GIF without motion has one."""
    reader = _Reader(data)
    header = reader.take(13)
    palette = reader.take(_palette_size(header[10]))
    frames, sizes, plays = _frames(reader, palette)
    if not frames:
        raise unreadable("The GIF has no image.")
    # The canvas is the screen, or the first picture's extent where that is larger, as in browsers.
    width = max(_u16(header, 6), frames[0].left + sizes[0][0])
    height = max(_u16(header, 8), frames[0].top + sizes[0][1])
    bounds.check_canvas(width, height, "GIF header")
    area = max(width * height, *starmap(mul, sizes))
    bounds.check_animation(len(frames), area, "GIF")
    return Animation(width, height, frames, plays)


def _frames(reader: _Reader, palette: bytes) -> tuple[list[Frame], list[tuple[int, int]], int]:
    """Return the frames, their widths and heights, and how often they are shown."""
    frames, sizes = [], []
    plays, control = 1, b""
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
            frame, size = _frame(reader, palette, control[:4].ljust(4, b"\0"))
            frames.append(frame)
            sizes.append(size)
            bounds.check_frame_count(len(frames), "GIF")
            control = b""
        elif introducer != b"\0":
            raise unreadable(f"The GIF has no block at byte {reader.at - 1:,}.")
    return frames, sizes, plays


def _frame(reader: _Reader, palette: bytes, control: bytes) -> tuple[Frame, tuple[int, int]]:
    descriptor = reader.take(9)
    palette = reader.take(_palette_size(descriptor[8])) or palette
    start = reader.at
    reader.take(1)
    reader.skip_blocks()
    left, top, width, height = (_u16(descriptor, at) for at in (0, 2, 4, 6))
    bounds.check_canvas(width, height, f"GIF image at byte {start:,}")
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
