from collections.abc import Iterator
from dataclasses import dataclass, field

from services.media.images.bounds import check_animation, check_canvas, check_frame_count
from services.media.images.outcome import truncated, unreadable

_FRAME_HEAD = 16
_DISPOSED = 1
_FLAGS = 20  # the offset of the flags in the extended header, which is always the first chunk
_ALPHA = 0x10


@dataclass(frozen=True, slots=True)
class WebpFile:
    width: int
    height: int
    durations: tuple[int, ...]  # milliseconds; empty for a still
    plays: int
    lossless: bool


@dataclass(slots=True)
class _Found:
    canvas: tuple[int, int] | None = None
    durations: list[int] = field(default_factory=list)
    plays: int = 0
    pictures: int = 0
    lossless: int = 0


def read(data: bytes) -> WebpFile:
    """Read the chunks, within the bounds, and decode nothing.

    A file is lossless if all its pictures are VP8L.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise truncated(f"The RIFF header gives {end:,} bytes; the file has {len(data):,}.")
    found = _Found()
    for name, body in _chunks(data, 12, end):
        if name == b"VP8X":
            found.canvas = (_u24(body, 4) + 1, _u24(body, 7) + 1)
        elif name == b"ANIM":
            found.plays = int.from_bytes(body[4:6], "little")
        elif name == b"ANMF":
            found.durations.append(_u24(body, 12))
            check_frame_count(len(found.durations), "WebP")
            for inner, part in _chunks(body, 16, len(body)):
                _note_picture(found, inner, part)
        else:
            _note_picture(found, name, body)
    if found.canvas is None or not found.pictures:
        raise unreadable("The WebP has no picture chunk.")
    width, height = found.canvas
    check_canvas(width, height, "WebP header")
    check_animation(len(found.durations), width * height, "WebP")
    is_lossless = found.lossless == found.pictures
    return WebpFile(width, height, tuple(found.durations), found.plays, is_lossless)


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
        if stop > end:
            raise truncated(f"The WebP chunk at byte {at:,} runs past the end of the file.")
        yield data[at : at + 4], data[start:stop]
        at = stop + (stop - start) % 2


def _note_picture(found: _Found, name: bytes, body: bytes) -> None:
    if name == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif name == b"VP8 ":
        bits = int.from_bytes(body[6:10], "little")
        size = bits & 0x3FFF, bits >> 16 & 0x3FFF
    else:
        return
    found.pictures += 1
    found.lossless += name == b"VP8L"
    found.canvas = found.canvas or size


def _u24(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 3], "little")
