from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction

from PIL import Image

from services.attachments.images.outcome import unreadable
from services.attachments.images.still import narrowed, narrowed_size

_CLEAR = (0, 0, 0, 0)
# The WebP encoder counts milliseconds in an int; a frame has 24 bits of them.
_MAX_TIMESTAMP_MILLISECONDS = 2**31 - 1
_MAX_DURATION_MILLISECONDS = 2**24 - 1


class Disposal(Enum):
    """The fate of a frame's rectangle before the next frame is drawn."""

    KEEP = auto()
    CLEAR = auto()
    RESTORE = auto()


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle of an animation; it is blended onto the canvas if `over`, else it replaces.

    `decode` returns its pixels as RGB or RGBA. It is called each time the frame is drawn.
    """

    left: int
    top: int
    duration_ms: Fraction
    disposal: Disposal
    over: bool
    decode: Callable[[], Image.Image]


@dataclass(frozen=True, slots=True)
class Animation:
    """A sequence of frames, shown `plays` times, 0 for ever. A still has an EXIF `orientation`."""

    width: int
    height: int
    frames: Sequence[Frame]
    plays: int
    orientation: int = 1


def first_view(animation: Animation) -> Image.Image:
    """Return the first view; a frame that covers the canvas is returned itself, not drawn."""
    image = animation.frames[0].decode()
    return image if image.size == (animation.width, animation.height) else Playback(animation)


class Playback(Image.Image):
    """The canvas as an image of several frames, which Pillow's encoders read: `n_frames`, `seek`.

    A frame is drawn when it is sought, so that only one is in memory. It is scaled to
    `width`, if that is given.
    """

    def __init__(self, animation: Animation, width: int | None = None) -> None:
        super().__init__()
        # Pairs of a frame's number and the whole milliseconds for which it is shown. Times are
        # rounded on the time line, so that no error adds up. A frame that lasts longer than a frame
        # of WebP may is shown again.
        steps: list[tuple[int, int]] = []
        end, shown = Fraction(0), 0
        for number, frame in enumerate(animation.frames):
            end += frame.duration_ms
            repeats, rest = divmod(round(end) - shown, _MAX_DURATION_MILLISECONDS)
            shown = round(end)
            steps += [(number, _MAX_DURATION_MILLISECONDS)] * repeats
            if rest or not repeats:
                steps.append((number, rest))
        if (most := _MAX_TIMESTAMP_MILLISECONDS) < shown:
            raise unreadable(f"One showing may last {most:,} ms; the frames add to {shown:,}.")
        self.n_frames = len(steps)
        self.durations = [ms for _, ms in steps]
        self._order = [number for number, _ in steps]
        self._animation = animation
        self._mode = "RGBA"
        self._size = narrowed_size((animation.width, animation.height), width or animation.width)
        self._step = 0
        self._rewind()

    def seek(self, frame: int) -> None:
        self._step = frame
        if self._order[frame] < self._drawn:
            self._rewind()
        while self._drawn < self._order[frame]:
            self._advance()

    def tell(self) -> int:
        return self._step

    def _rewind(self) -> None:
        self._drawn = -1
        self._canvases = _canvases(self._animation)
        self._advance()

    def _advance(self) -> None:
        canvas = next(self._canvases)
        self.im = (canvas if canvas.size == self._size else narrowed(canvas, self._size)).im
        self._drawn += 1


def _canvases(animation: Animation) -> Iterator[Image.Image]:
    canvas = Image.new("RGBA", (animation.width, animation.height), _CLEAR)
    for frame in animation.frames:
        patch = frame.decode()
        box = (frame.left, frame.top, frame.left + patch.width, frame.top + patch.height)
        before = canvas.crop(box) if frame.disposal is Disposal.RESTORE else None
        if frame.over and patch.mode == "RGBA":
            # Pillow composes nothing that reaches outside of the canvas.
            width = max(0, min(box[2], canvas.width) - box[0])
            height = max(0, min(box[3], canvas.height) - box[1])
            canvas.alpha_composite(patch, box[:2], (0, 0, width, height))
        else:
            canvas.paste(patch, box)
        # The encoder needs the memory now.
        del patch
        yield canvas
        if before is not None:
            canvas.paste(before, box)
        elif frame.disposal is Disposal.CLEAR:
            canvas.paste(_CLEAR, box)
