"""The animation chunks of a PNG: frames, in the order of their sequence numbers.

A file whose chunks are out of order, or whose frames have no pixels or lie outside of the canvas,
is faulty. As in browsers, the frames before the first fault are shown. Without one the still image
is, which every PNG has. How many frames the file claims counts for nothing.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.media.images import bounds

FRAME_CONTROL = struct.Struct(">4xIIIIHHBB")
_HEADER = struct.Struct(">II")
_NUMBER_BYTES = 4


@dataclass(slots=True)
class Cut:
    """A frame as the file has it: its control chunk, and the pieces of its compressed pixels."""

    control: bytes
    pieces: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class AnimationChunks:
    """Takes a PNG's chunks in the order of the file.

    Attributes:
        plays: how often the frames are shown, 0 for ever.
        cuts: the frames so far; the last one may lack pixels, after a fault for good.
        is_faulty: whether a fault was found, after which no chunk counts.
    """

    plays: int = 0
    cuts: list[Cut] = field(default_factory=list)
    is_faulty: bool = False
    _has_begun: bool = False
    _next_number: int = 0

    def begin(self, body: bytes) -> None:
        """Take a header of an animation (acTL). Of several the first counts, unless it is empty."""
        if self._has_begun or len(body) != _HEADER.size:
            return
        frames, plays = _HEADER.unpack(body)
        self._has_begun = frames > 0
        self.plays = min(plays, bounds.MAX_PLAYS)

    def add_control(self, body: bytes, canvas: tuple[int, int], *, is_still: bool) -> None:
        """Take a frame's control chunk (fcTL); `is_still`: its pixels are the still image's."""
        if not self._is_read():
            return
        before_is_whole = not self.cuts or self.cuts[-1].pieces
        if self._is_next(body) and before_is_whole and _fits(body, canvas, is_still=is_still):
            self.cuts.append(Cut(body))
            bounds.check_frame_count(len(self.cuts), "APNG")
        else:
            self.is_faulty = True

    def add_data(self, body: bytes) -> None:
        """Take pixels of a frame (fdAT)."""
        if not self._is_read():
            return
        if self._is_next(body) and self.cuts:
            self.cuts[-1].pieces.append(body[_NUMBER_BYTES:])
        else:
            self.is_faulty = True

    def add_still(self, body: bytes) -> None:
        """Take pixels of the still image (IDAT): a frame's, if a control chunk precedes them."""
        if self._is_read() and self.cuts:
            self.cuts[-1].pieces.append(body)

    def shown(self) -> Iterable[Cut]:
        """The frames that have pixels."""
        return (cut for cut in self.cuts if cut.pieces)

    def _is_read(self) -> bool:
        return self._has_begun and not self.is_faulty

    def _is_next(self, body: bytes) -> bool:
        number, self._next_number = self._next_number, self._next_number + 1
        return body[:_NUMBER_BYTES] == number.to_bytes(_NUMBER_BYTES, "big")


def _fits(body: bytes, canvas: tuple[int, int], *, is_still: bool) -> bool:
    if len(body) != FRAME_CONTROL.size:
        return False
    width, height, left, top, *_ = FRAME_CONTROL.unpack(body)
    if is_still:
        return (width, height, left, top) == (*canvas, 0, 0)
    is_inside = left + width <= canvas[0] and top + height <= canvas[1]
    return bool(min(width, height) > 0 and is_inside)
