"""Draws the frames of an animation onto a canvas."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction

from PIL import Image

from services.attachments.images.outcome import create_unreadable_error
from services.attachments.images.still import resize_image, scale_size

_TRANSPARENT = (0, 0, 0, 0)
# The WebP encoder stores timestamps as signed 32-bit integers and durations in 24 bits.
_MAX_TIMESTAMP_MILLISECONDS = 2**31 - 1
_MAX_DURATION_MILLISECONDS = 2**24 - 1


class Disposal(Enum):
    """The disposal method of a frame, which applies before the next frame is drawn."""

    KEEP = auto()
    CLEAR = auto()
    RESTORE = auto()


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of an animation, which covers a rectangle of the canvas.

    Attributes:
        over: whether the frame is alpha-blended with the canvas rather than replacing its pixels.
        decode: a function that decodes the frame to an RGB or RGBA image, which is discarded after
            drawing to save memory.
    """

    left: int
    top: int
    duration_ms: Fraction
    disposal: Disposal
    over: bool
    decode: Callable[[], Image.Image]


@dataclass(frozen=True, slots=True)
class Animation:
    """An animation as a sequence of frames.

    ``plays`` is 0 for endless repetition. ``orientation`` is the EXIF orientation of a still image.
    """

    width: int
    height: int
    frames: Sequence[Frame]
    plays: int
    orientation: int = 1


def render_first_view(animation: Animation) -> Image.Image:
    """Draw the first frame of an animation, and return the canvas.

    If the first frame covers the whole canvas, return the frame without creating a canvas.
    """
    image = animation.frames[0].decode()
    return image if image.size == (animation.width, animation.height) else Playback(animation)


class Playback(Image.Image):
    """An animation as a Pillow image with several frames, which Pillow's encoders can read.

    Frames are drawn one by one while Pillow's encoder reads them, so that only one frame is in
    memory. If ``width`` is set, all frames are scaled to ``width`` pixels.
    """

    def __init__(self, animation: Animation, width: int | None = None) -> None:
        super().__init__()
        # ``steps`` contains frame numbers with durations in milliseconds. Round the end times of
        # the frames rather than their durations, so that rounding errors don't add up. Repeat a
        # frame if its duration exceeds the maximum duration of a WebP frame.
        steps: list[tuple[int, int]] = []
        exact_end_ms = Fraction(0)
        end_ms = 0
        for number, frame in enumerate(animation.frames):
            exact_end_ms += frame.duration_ms
            duration_ms = round(exact_end_ms) - end_ms
            repeats, rest = divmod(duration_ms, _MAX_DURATION_MILLISECONDS)
            end_ms = round(exact_end_ms)
            steps += [(number, _MAX_DURATION_MILLISECONDS)] * repeats
            if rest or not repeats:
                steps.append((number, rest))
        max_ms = _MAX_TIMESTAMP_MILLISECONDS
        if end_ms > max_ms:
            raise create_unreadable_error(
                f"An animation can last at most {max_ms:,} ms. This animation lasts {end_ms:,} ms."
            )
        self.n_frames = len(steps)
        self.durations = [ms for _, ms in steps]
        self._order = [number for number, _ in steps]
        self._animation = animation
        self._mode = "RGBA"
        self._size = scale_size((animation.width, animation.height), width or animation.width)
        self._step = 0
        self._rewind()

    def seek(self, frame: int) -> None:
        self._step = frame
        if self._order[frame] < self._drawn_frame:
            self._rewind()
        while self._drawn_frame < self._order[frame]:
            self._draw_next()

    def tell(self) -> int:
        return self._step

    def _rewind(self) -> None:
        self._drawn_frame = -1
        self._canvases = _draw_canvases(self._animation)
        self._draw_next()

    def _draw_next(self) -> None:
        canvas = next(self._canvases)
        scaled = canvas if canvas.size == self._size else resize_image(canvas, self._size)
        self.im = scaled.im
        self._drawn_frame += 1


def _draw_canvases(animation: Animation) -> Iterator[Image.Image]:
    canvas = Image.new("RGBA", (animation.width, animation.height), _TRANSPARENT)
    for frame in animation.frames:
        patch = frame.decode()
        box = (frame.left, frame.top, frame.left + patch.width, frame.top + patch.height)
        before = canvas.crop(box) if frame.disposal is Disposal.RESTORE else None
        if frame.over and patch.mode == "RGBA":
            # Crop the frame to the canvas, because Pillow refuses to draw outside of the canvas.
            width = max(0, min(box[2], canvas.width) - box[0])
            height = max(0, min(box[3], canvas.height) - box[1])
            canvas.alpha_composite(patch, box[:2], (0, 0, width, height))
        else:
            canvas.paste(patch, box)
        # Free the memory of the drawn frame before Pillow encodes the canvas.
        del patch
        yield canvas
        if before is not None:
            canvas.paste(before, box)
        elif frame.disposal is Disposal.CLEAR:
            canvas.paste(_TRANSPARENT, box)
