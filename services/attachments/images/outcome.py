"""Defines the result of an image conversion, and checks the limits for uploaded images."""

from dataclasses import dataclass
from enum import StrEnum

from core.errors import media as errors
from core.errors.catalogue import ErrorType
from core.errors.media import IMAGE_TRUNCATED, IMAGE_UNREADABLE

# The maximum width and height of a WebP in pixels.
MAX_SIDE_PIXELS = 16_383
MAX_PIXELS = 50_000_000
MAX_FRAMES = 1_000
# The maximum number of plays that a WebP animation can store.
MAX_PLAYS = 65_535
# The pixel limits for animations apply to the number of frames times the area of the canvas.
MAX_ANIMATION_PIXELS = 100_000_000
MAX_LOSSLESS_ANIMATION_PIXELS = 24_000_000
MAX_LOSSLESS_PIXELS = 12_000_000


class RenditionName(StrEnum):
    """The names of the renditions of an image.

    The names of web renditions are their width in pixels. Only the thumbnail is created without a
    request.
    """

    THUMBNAIL = "thumbnail"
    NARROW = "320"
    MEDIUM = "640"
    WIDE = "1280"
    MAIL = "mail"


@dataclass(frozen=True, slots=True)
class Rendition:
    name: RenditionName
    data: bytes
    mime_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ConvertedImage:
    """An image in Pressroom's storage format. ``frames`` is 1 for a still image."""

    data: bytes
    mime_type: str
    width: int
    height: int
    frames: int
    blurhash: str
    renditions: tuple[Rendition, ...] = ()


@dataclass(eq=False)
class UnreadableImage(Exception):
    """An uploaded image can't be converted. The message contains the position in the file."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def create_refusal(error: ErrorType, **values: object) -> UnreadableImage:
    return UnreadableImage(error.code, error.fill(**values).sentence)


def create_unreadable_error(reason: str) -> UnreadableImage:
    return create_refusal(IMAGE_UNREADABLE, reason=reason)


def create_truncated_error(reason: str) -> UnreadableImage:
    return create_refusal(IMAGE_TRUNCATED, reason=reason)


def check_canvas(width: int, height: int, place: str) -> None:
    if width < 1 or height < 1:
        raise create_unreadable_error(
            f"The size in the {place} is {width} by {height} pixels. Both sides must have at least "
            "one pixel."
        )
    size = {"place": place, "width": width, "height": height}
    if max(width, height) > MAX_SIDE_PIXELS:
        raise create_refusal(errors.IMAGE_SIDE_TOO_LONG, most=MAX_SIDE_PIXELS, **size)
    area = width * height
    if area > MAX_PIXELS:
        raise create_refusal(errors.IMAGE_TOO_MANY_PIXELS, most=MAX_PIXELS, area=area, **size)


def check_frame_count(frames: int, place: str) -> None:
    if frames > MAX_FRAMES:
        raise create_refusal(
            errors.IMAGE_TOO_MANY_FRAMES, most=MAX_FRAMES, place=place, frames=frames
        )


def check_animation(frames: int, area: int, place: str) -> None:
    """Raise ``UnreadableImage`` if an animation has too many frames or pixels.

    ``area`` is the number of pixels of the canvas, or of the largest frame if it exceeds the
    canvas.
    """
    check_frame_count(frames, place)
    drawn_pixels = frames * area
    if frames > 1 and drawn_pixels > MAX_ANIMATION_PIXELS:
        size = {"place": place, "frames": frames, "area": area, "drawn": drawn_pixels}
        raise create_refusal(errors.IMAGE_ANIMATION_TOO_LARGE, most=MAX_ANIMATION_PIXELS, **size)


class ImageType(StrEnum):
    """The image formats that users can upload. APNG counts as PNG, and MPO counts as JPEG."""

    PNG = "png"
    JPEG = "jpeg"
    GIF = "gif"
    WEBP = "webp"
    ICO = "ico"

    @property
    def mime_type(self) -> str:
        return "image/x-icon" if self is ImageType.ICO else f"image/{self.value}"


# The file name extensions that uploads may have, in lower case and without the dot.
ALLOWED_EXTENSIONS = frozenset({*ImageType, "jpg"})

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", ImageType.PNG),
    (b"\xff\xd8\xff", ImageType.JPEG),
    (b"GIF87a", ImageType.GIF),
    (b"GIF89a", ImageType.GIF),
    (b"\0\0\1\0", ImageType.ICO),
)


def sniff_image_type(data: bytes) -> ImageType | None:
    if data[:4] == b"RIFF" and data[8:15] == b"WEBPVP8":
        return ImageType.WEBP
    return next((kind for magic, kind in _SIGNATURES if data.startswith(magic)), None)
