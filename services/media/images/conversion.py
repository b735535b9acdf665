import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from PIL import Image

from core.refusals.media import IMAGE_EMPTY, IMAGE_OUT_OF_MEMORY, IMAGE_UNSUPPORTED_TYPE
from services.media.images import bounds, renditions
from services.media.images.animation import Animation, Disposal, Frame, first_view
from services.media.images.colours import displayable
from services.media.images.encoding import encode_animation, encode_icon, encode_still
from services.media.images.formats import gif, ico, jpeg, png, webp
from services.media.images.image_type import ImageType, sniff
from services.media.images.outcome import (
    ConvertedImage,
    Rendition,
    refused,
    truncated,
    unreadable,
)
from services.media.images.still import DECODER_ERRORS, decode_upright, open_only, upright

# Pillow's messages may hold ``<_io.BytesIO object at 0x7f…>``.
_OBJECT = re.compile(r" ?<[^<>]+ at 0x[0-9a-fA-F]+>")


def convert(data: bytes, *, with_renditions: bool = False) -> ConvertedImage:
    """Convert an image to the form in which we store it; raises UnreadableImage.

    The result depends on the bytes alone: equal uploads give equal images and renditions.
    """
    if not data:
        raise refused(IMAGE_EMPTY)
    kind = sniff(data)
    if kind is None:
        raise refused(IMAGE_UNSUPPORTED_TYPE)
    try:
        decoded = _read(kind, data)
        converted = decoded.encoded()
        made = decoded.renditions() if with_renditions else ()
    except MemoryError as error:
        raise refused(IMAGE_OUT_OF_MEMORY) from error
    except DECODER_ERRORS as error:
        raise _refusal(kind, error) from error
    return replace(converted, renditions=made)


def _refusal(kind: ImageType, error: Exception) -> Exception:
    text = _OBJECT.sub("", str(error))
    if text.startswith(("encoding error 1", "encoding error 2")):
        return refused(IMAGE_OUT_OF_MEMORY)
    if "truncated" in text.lower():
        return truncated(f"The {kind.name} stops before its pixels do: {text}")
    return unreadable(f"The {kind.name} could not be decoded: {text or type(error).__name__}")


@dataclass(frozen=True, slots=True)
class _Still:
    """A picture that stands upright, in RGB or RGBA."""

    image: Image.Image
    lossless: bool

    def encoded(self) -> ConvertedImage:
        return encode_still(self.image, lossless=self.lossless)

    def renditions(self) -> tuple[Rendition, ...]:
        return renditions.of_still(self.image)


class _Icon(_Still):
    def encoded(self) -> ConvertedImage:
        return encode_icon(self.image)


@dataclass(frozen=True, slots=True)
class _Moving:
    animation: Animation
    lossless: bool

    def encoded(self) -> ConvertedImage:
        return encode_animation(self.animation, lossless=self.lossless)

    def renditions(self) -> tuple[Rendition, ...]:
        return renditions.of_animation(self.animation)


def _read(kind: ImageType, data: bytes) -> _Still | _Moving:
    match kind:
        case ImageType.JPEG:
            jpeg.check_complete(data)
            return _Still(decode_upright(data, "JPEG"), lossless=False)
        case ImageType.PNG:
            return _of_frames(png.read(data), bounds.MAX_LOSSLESS_PIXELS)
        case ImageType.GIF:
            return _of_frames(gif.read(data), bounds.MAX_PIXELS)
        case ImageType.WEBP:
            return _read_webp(data)
        case ImageType.ICO:
            return _Icon(ico.decode_best(data), lossless=True)


def _of_frames(animation: Animation, max_lossless_pixels: int) -> _Still | _Moving:
    area = animation.width * animation.height
    if len(animation.frames) == 1:
        still = upright(first_view(animation), animation.orientation)
        return _Still(still, lossless=area <= max_lossless_pixels)
    drawn = area * len(animation.frames)
    return _Moving(animation, lossless=drawn <= bounds.MAX_LOSSLESS_ANIMATION_PIXELS)


def _read_webp(data: bytes) -> _Still | _Moving:
    found = webp.read(data)
    area = found.width * found.height
    if len(found.durations) <= 1:
        lossless = found.lossless and area <= bounds.MAX_LOSSLESS_PIXELS
        return _Still(decode_upright(data, "WEBP"), lossless=lossless)
    image = open_only(data, "WEBP")

    def frame(number: int) -> Image.Image:
        image.seek(number)
        image.load()
        # A copy: colours are converted in place, and the decoder draws its next frame over it.
        return displayable(image.copy())

    frames = [
        Frame(0, 0, Fraction(ms), Disposal.KEEP, over=False, decode=partial(frame, number))
        for number, ms in enumerate(found.durations)
    ]
    animation = Animation(found.width, found.height, frames, found.plays)
    lossless = found.lossless and area * len(frames) <= bounds.MAX_LOSSLESS_ANIMATION_PIXELS
    return _Moving(animation, lossless=lossless)
