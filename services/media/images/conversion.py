import struct
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from types import MappingProxyType

from PIL import Image

from core.refusals.media import IMAGE_EMPTY, IMAGE_OUT_OF_MEMORY, IMAGE_UNSUPPORTED_TYPE
from services.media.images import gif, ico, jpeg, png, webp
from services.media.images.animation import Animation, Disposal, Frame, first_view
from services.media.images.bounds import (
    MAX_LOSSLESS_ANIMATION_PIXELS,
    MAX_LOSSLESS_PIXELS,
    MAX_PIXELS,
)
from services.media.images.colours import displayable
from services.media.images.encoding import encode_animation, encode_icon, encode_still
from services.media.images.image_type import ImageType, sniff
from services.media.images.outcome import (
    ConvertedImage,
    UnreadableImage,
    refused,
    truncated,
    unreadable,
)
from services.media.images.still import decode_upright, open_only, upright

# What Pillow's decoders raise on bytes they cannot make sense of.
_DECODER_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def convert(data: bytes) -> ConvertedImage:
    """The image as we store it: a pure function, the same bytes in give the same bytes out.

    Raises UnreadableImage.
    """
    if not data:
        raise refused(IMAGE_EMPTY)
    kind = sniff(data)
    if kind is None:
        raise refused(IMAGE_UNSUPPORTED_TYPE)
    try:
        return _CONVERTERS[kind](data)
    except MemoryError as error:
        raise refused(IMAGE_OUT_OF_MEMORY) from error
    except _DECODER_ERRORS as error:
        raise _refusal(kind, error) from error


def _convert_jpeg(data: bytes) -> ConvertedImage:
    jpeg.check_complete(data)
    return encode_still(decode_upright(data, "JPEG"), lossless=False)


def _convert_png(data: bytes) -> ConvertedImage:
    return _convert_frames(png.read(data), lossless_pixels=MAX_LOSSLESS_PIXELS)


def _convert_gif(data: bytes) -> ConvertedImage:
    return _convert_frames(gif.read(data), lossless_pixels=MAX_PIXELS)


def _convert_frames(animation: Animation, *, lossless_pixels: int) -> ConvertedImage:
    area = animation.width * animation.height
    if len(animation.frames) == 1:
        still = upright(first_view(animation), animation.orientation)
        return encode_still(still, lossless=area <= lossless_pixels)
    drawn = area * len(animation.frames)
    return encode_animation(animation, lossless=drawn <= MAX_LOSSLESS_ANIMATION_PIXELS)


def _convert_webp(data: bytes) -> ConvertedImage:
    found = webp.read(data)
    area = found.width * found.height
    if len(found.durations) <= 1:
        lossless = found.lossless and area <= MAX_LOSSLESS_PIXELS
        return encode_still(decode_upright(data, "WEBP"), lossless=lossless)
    with open_only(data, "WEBP") as image:
        frames = [
            Frame(
                0, 0, Fraction(ms), Disposal.KEEP, over=False, decode=partial(_frame, image, number)
            )
            for number, ms in enumerate(found.durations)
        ]
        animation = Animation(found.width, found.height, frames, found.plays)
        lossless = found.lossless and area * len(frames) <= MAX_LOSSLESS_ANIMATION_PIXELS
        return encode_animation(animation, lossless=lossless)


def _frame(image: Image.Image, number: int) -> Image.Image:
    image.seek(number)
    image.load()
    # A copy: colours are converted in place, and the decoder draws its next frame over this one.
    return displayable(image.copy())


def _convert_ico(data: bytes) -> ConvertedImage:
    return encode_icon(ico.decode_best(data))


_CONVERTERS: Mapping[ImageType, Callable[[bytes], ConvertedImage]] = MappingProxyType(
    {
        ImageType.JPEG: _convert_jpeg,
        ImageType.PNG: _convert_png,
        ImageType.GIF: _convert_gif,
        ImageType.WEBP: _convert_webp,
        ImageType.ICO: _convert_ico,
    }
)


def _refusal(kind: ImageType, error: Exception) -> UnreadableImage:
    text = str(error)
    if text.startswith(("encoding error 1", "encoding error 2")):
        return refused(IMAGE_OUT_OF_MEMORY)
    if "truncated" in text.lower():
        return truncated(f"The {kind.name} stops before its pixels do: {text}")
    return unreadable(f"The {kind.name} could not be decoded: {text or type(error).__name__}")
