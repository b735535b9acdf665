"""The result of a conversion of an image, and the limits that an uploaded image must keep."""

from dataclasses import dataclass
from enum import StrEnum

from core.errors import media as errors
from core.errors.catalogue import ErrorType
from core.errors.media import IMAGE_TRUNCATED, IMAGE_UNREADABLE


class RenditionName(StrEnum):
    """The purpose of a rendition: a page, in this width in pixels, or a mail."""

    NARROW = "320"
    MEDIUM = "640"
    WIDE = "1280"
    MAIL = "mail"


@dataclass(frozen=True, slots=True)
class Rendition:
    """A smaller copy of an image, or one that each mail program shows."""

    name: RenditionName
    data: bytes
    mime_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ConvertedImage:
    """An image as it is stored. `width` and `height` are in pixels; a still has 1 of `frames`."""

    data: bytes
    mime_type: str
    width: int
    height: int
    frames: int
    blurhash: str
    renditions: tuple[Rendition, ...] = ()


@dataclass(eq=False)
class UnreadableImage(Exception):
    """Raised for an image that we refuse; the message names the rule and the place."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def refused(error: ErrorType, **values: object) -> UnreadableImage:
    """Make an entry of the catalogue of errors an error that the converter process can send."""
    return UnreadableImage(error.code, error.fill(**values).sentence)


def unreadable(reason: str) -> UnreadableImage:
    return refused(IMAGE_UNREADABLE, reason=reason)


def truncated(reason: str) -> UnreadableImage:
    return refused(IMAGE_TRUNCATED, reason=reason)


MAX_SIDE_PIXELS = 16_383  # the largest side of a WebP
MAX_PIXELS = 50_000_000
MAX_FRAMES = 1_000
MAX_PLAYS = 65_535  # the most that a WebP can hold
MAX_ANIMATION_PIXELS = 100_000_000
MAX_LOSSLESS_PIXELS = 12_000_000
MAX_LOSSLESS_ANIMATION_PIXELS = 24_000_000  # frames times area


def check_canvas(width: int, height: int, place: str) -> None:
    if width < 1 or height < 1:
        raise unreadable(
            f"The {place} gives a size of {width} by {height}; both sides need pixels."
        )
    size = {"place": place, "width": width, "height": height}
    if max(width, height) > MAX_SIDE_PIXELS:
        raise refused(errors.IMAGE_SIDE_TOO_LONG, most=MAX_SIDE_PIXELS, **size)
    if (area := width * height) > MAX_PIXELS:
        raise refused(errors.IMAGE_TOO_MANY_PIXELS, most=MAX_PIXELS, area=area, **size)


def check_frame_count(frames: int, place: str) -> None:
    if frames > MAX_FRAMES:
        raise refused(errors.IMAGE_TOO_MANY_FRAMES, most=MAX_FRAMES, place=place, frames=frames)


def check_animation(frames: int, area: int, place: str) -> None:
    """`area` is that of the canvas, or of the largest frame if a frame is larger."""
    check_frame_count(frames, place)
    drawn = frames * area
    if frames > 1 and drawn > MAX_ANIMATION_PIXELS:
        size = {"place": place, "frames": frames, "area": area, "drawn": drawn}
        raise refused(errors.IMAGE_ANIMATION_TOO_LARGE, most=MAX_ANIMATION_PIXELS, **size)


class ImageType(StrEnum):
    """The formats that we read. PNG includes APNG, and JPEG includes MPO."""

    PNG = "png"
    JPEG = "jpeg"
    GIF = "gif"
    WEBP = "webp"
    ICO = "ico"

    @property
    def mime_type(self) -> str:
        return "image/x-icon" if self is ImageType.ICO else f"image/{self.value}"


# The endings of file names, in lower case and without the dot.
ALLOWED_EXTENSIONS = frozenset({*ImageType, "jpg"})

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", ImageType.PNG),
    (b"\xff\xd8\xff", ImageType.JPEG),
    (b"GIF87a", ImageType.GIF),
    (b"GIF89a", ImageType.GIF),
    (b"\0\0\1\0", ImageType.ICO),
)


def sniff_image_type(data: bytes) -> ImageType | None:
    """Return the type by the first bytes, of which 16 are enough; None for a type not ours."""
    if data[:4] == b"RIFF" and data[8:15] == b"WEBPVP8":
        return ImageType.WEBP
    return next((kind for magic, kind in _SIGNATURES if data.startswith(magic)), None)
