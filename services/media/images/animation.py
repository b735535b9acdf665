from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction

from PIL import Image

from services.media.images.outcome import unreadable

_CLEAR = (0, 0, 0, 0)
# The WebP encoder counts milliseconds in an int; a frame has 24 bits of them.
_MAX_TIMESTAMP_MILLISECONDS = 2**31 - 1
_MAX_DURATION_MILLISECONDS = 2**24 - 1


class Disposal(Enum):
    """What becomes of a frame's rectangle before the next frame is drawn."""

    KEEP = auto()
    CLEAR = auto()
    RESTORE = auto()


@dataclass(frozen=True, slots=True)
class Frame:
    """One rectangle of an animation. `over` blends it onto the canvas, otherwise it replaces.

    `decode` gives its pixels as RGB or RGBA; called once for each time the frame is drawn.
    """

    left: int
    top: int
    duration_ms: Fraction
    disposal: Disposal
    over: bool
    decode: Callable[[], Image.Image]


@dataclass(frozen=True, slots=True)
class Animation:
    """`plays` counts whole showings; 0 is for ever. A still has an EXIF `orientation`."""

    width: int
    height: int
    frames: Sequence[Frame]
    plays: int
    orientation: int = 1


def first_view(animation: Animation) -> Image.Image:
    """What is seen first; the frame itself, undrawn, where it covers the canvas."""
    image = animation.frames[0].decode()
    return image if image.size == (animation.width, animation.height) else Playback(animation)


def _durations(frames: Sequence[Frame]) -> list[int]:
    """Whole milliseconds for each frame, rounded on the time line so that no error adds up."""
    whole: list[int] = []
    end = Fraction(0)
    shown = 0
    for frame in frames:
        end += frame.duration_ms
        whole.append(round(end) - shown)
        shown = round(end)
    if shown > _MAX_TIMESTAMP_MILLISECONDS:
        raise unreadable(
            f"One showing may last {_MAX_TIMESTAMP_MILLISECONDS:,} ms; the frames add to {shown:,}."
        )
    return whole


def _steps(durations: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of frame number and time; a frame that outlasts what WebP can say is shown again."""
    steps: list[tuple[int, int]] = []
    for number, left in enumerate(durations):
        repeats, rest = divmod(left, _MAX_DURATION_MILLISECONDS)
        steps += [(number, _MAX_DURATION_MILLISECONDS)] * repeats
        if rest or not repeats:
            steps.append((number, rest))
    return steps


class Playback(Image.Image):
    """The canvas, as Pillow's encoders walk an image of several frames: `n_frames` and `seek`.

    Drawing on seek keeps one frame in memory instead of all.
    """

    def __init__(self, animation: Animation) -> None:
        super().__init__()
        steps = _steps(_durations(animation.frames))
        self.n_frames = len(steps)
        self.durations = [ms for _, ms in steps]
        self._order = [number for number, _ in steps]
        self._animation = animation
        self._mode = "RGBA"
        self._size = (animation.width, animation.height)
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
        self.im = next(self._canvases).im
        self._drawn += 1


def _canvases(animation: Animation) -> Iterator[Image.Image]:
    canvas = Image.new("RGBA", (animation.width, animation.height), _CLEAR)
    for frame in animation.frames:
        patch = frame.decode()
        box = (frame.left, frame.top, frame.left + patch.width, frame.top + patch.height)
        before = canvas.crop(box) if frame.disposal is Disposal.RESTORE else None
        if frame.over and patch.mode == "RGBA":
            canvas.alpha_composite(_inside(patch, box, canvas), box[:2])
        else:
            canvas.paste(patch, box)
        # The encoder is about to need the memory.
        del patch
        yield canvas
        if before is not None:
            canvas.paste(before, box)
        elif frame.disposal is Disposal.CLEAR:
            canvas.paste(_CLEAR, box)


def _inside(patch: Image.Image, box: tuple[int, int, int, int], canvas: Image.Image) -> Image.Image:
    width = max(0, min(box[2], canvas.width) - box[0])
    height = max(0, min(box[3], canvas.height) - box[1])
    if (width, height) == patch.size:
        return patch
    return patch.crop((0, 0, width, height))
