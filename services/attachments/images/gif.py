"""Reads the frames of GIF files."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import starmap
from operator import mul

from PIL import Image

from services.attachments.images import outcome
from services.attachments.images.animation import Animation, Disposal, Frame
from services.attachments.images.outcome import create_truncated_error, create_unreadable_error
from services.attachments.images.still import decode_image

_DISPOSALS = {2: Disposal.CLEAR, 3: Disposal.RESTORE}
_CONTROL_LABEL = 0xF9
_APPLICATION_LABEL = 0xFF
# The names of the GIF extensions that contain the number of repetitions.
_LOOP_BLOCKS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        block = self.data[self.at : self.at + count]
        if len(block) < count:
            raise create_truncated_error(
                f"The GIF ends inside a block, at byte {len(self.data):,}."
            )
        self.at += count
        return block

    def skip_blocks(self) -> bytes:
        first = b""
        while size := self.take(1)[0]:
            block = self.take(size)
            first = first or block
        return first


def read_gif(data: bytes) -> Animation:
    reader = _Reader(data)
    header = reader.take(13)
    palette = reader.take(_palette_size(header[10]))
    frames = list[Frame]()
    sizes = list[tuple[int, int]]()
    plays = 1
    control = b""
    while (introducer := reader.take(1)) != b";":
        if introducer == b"!":
            label = reader.take(1)[0]
            if label == _CONTROL_LABEL:
                control = reader.skip_blocks()
            elif label == _APPLICATION_LABEL:
                size = reader.take(1)[0]
                name = reader.take(size)
                body = reader.skip_blocks() if size else b""
                # The file contains the number of repetitions, so the animation is played once more
                # than this number. The number 0 means endless repetition.
                if name in _LOOP_BLOCKS and body[:1] == b"\x01":
                    repetitions = _u16(body, 1)
                    plays = min(repetitions + 1, outcome.MAX_PLAYS) if repetitions else 0
            else:
                reader.skip_blocks()
        elif introducer == b",":
            frame, extent = _read_frame(reader, palette, control[:4].ljust(4, b"\0"))
            frames.append(frame)
            sizes.append(extent)
            outcome.check_frame_count(len(frames), "GIF")
            control = b""
        elif introducer != b"\0" and frames:
            break  # Like browsers, keep the GIF frames before an invalid block.
        elif introducer != b"\0":
            raise create_unreadable_error(
                f"The GIF has an invalid block at byte {reader.at - 1:,}."
            )
    if not frames:
        raise create_unreadable_error("The GIF contains no image.")
    # Like browsers, enlarge the canvas if the first GIF frame doesn't fit into it.
    width = max(_u16(header, 6), frames[0].left + sizes[0][0])
    height = max(_u16(header, 8), frames[0].top + sizes[0][1])
    outcome.check_canvas(width, height, "GIF header")
    area = max(width * height, *starmap(mul, sizes))
    outcome.check_animation(len(frames), area, "GIF")
    return Animation(width, height, frames, plays)


def _read_frame(reader: _Reader, palette: bytes, control: bytes) -> tuple[Frame, tuple[int, int]]:
    descriptor = reader.take(9)
    palette = reader.take(_palette_size(descriptor[8])) or palette
    start = reader.at
    reader.take(1)
    reader.skip_blocks()
    x, y, width, height = (_u16(descriptor, at) for at in (0, 2, 4, 6))
    outcome.check_canvas(width, height, f"GIF image at byte {start:,}")
    stop = reader.at
    size = descriptor[4:8]
    flags = descriptor[8] & 0x40
    if palette:
        flags |= 0x80 | (len(palette) // 3).bit_length() - 2

    def decode_frame() -> Image.Image:
        single_image = (
            b"GIF89a" + size + b"\0\0\0!\xf9\x04" + control + b"\0," + bytes(4) + size
            + bytes([flags]) + palette + reader.data[start:stop] + b";"
        )  # fmt: skip
        return decode_image(single_image, "GIF")

    disposal = _DISPOSALS.get(control[0] >> 2 & 7, Disposal.KEEP)
    duration_ms = Fraction(_u16(control, 1) * 10)
    frame = Frame(x, y, duration_ms, disposal, over=True, decode=decode_frame)
    return frame, (width, height)


def _palette_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")
