import re
import struct
import zlib
from fractions import Fraction
from functools import partial

from PIL import Image

from core.refusals.media import IMAGE_EMPTY, IMAGE_OUT_OF_MEMORY, IMAGE_UNSUPPORTED_TYPE
from services.media.images import bounds
from services.media.images.animation import Animation, Disposal, Frame, first_view
from services.media.images.colours import displayable
from services.media.images.encoding import encode_animation, encode_icon, encode_still
from services.media.images.formats import gif, ico, jpeg, png, webp
from services.media.images.image_type import ImageType, sniff
from services.media.images.outcome import ConvertedImage, refused, truncated, unreadable
from services.media.images.still import decode_upright, open_only, upright

# Pillow's messages may hold ``<_io.BytesIO object at 0x7f…>``.
_OBJECT = re.compile(r" ?<[^<>]+ at 0x[0-9a-fA-F]+>")
# Pillow's decoders raise these for bytes that they can't decode.
_DECODER_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    OverflowError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def convert(data: bytes) -> ConvertedImage:
    """Convert an image to the form in which we store it; raises UnreadableImage.

    The result depends on the bytes alone: equal uploads give equal images.
    """
    if not data:
        raise refused(IMAGE_EMPTY)
    kind = sniff(data)
    if kind is None:
        raise refused(IMAGE_UNSUPPORTED_TYPE)
    try:
        match kind:
            case ImageType.JPEG:
                jpeg.check_complete(data)
                return encode_still(decode_upright(data, "JPEG"), lossless=False)
            case ImageType.PNG:
                return _convert_frames(png.read(data), bounds.MAX_LOSSLESS_PIXELS)
            case ImageType.GIF:
                return _convert_frames(gif.read(data), bounds.MAX_PIXELS)
            case ImageType.WEBP:
                return _convert_webp(data)
            case ImageType.ICO:
                return encode_icon(ico.decode_best(data))
    except MemoryError as error:
        raise refused(IMAGE_OUT_OF_MEMORY) from error
    except _DECODER_ERRORS as error:
        raise _refusal(kind, error) from error


def _refusal(kind: ImageType, error: Exception) -> Exception:
    text = _OBJECT.sub("", str(error))
    if text.startswith(("encoding error 1", "encoding error 2")):
        return refused(IMAGE_OUT_OF_MEMORY)
    if "truncated" in text.lower():
        return truncated(f"The {kind.name} stops before its pixels do: {text}")
    return unreadable(f"The {kind.name} could not be decoded: {text or type(error).__name__}")


def _convert_frames(animation: Animation, max_lossless_pixels: int) -> ConvertedImage:
    area = animation.width * animation.height
    if len(animation.frames) == 1:
        still = upright(first_view(animation), animation.orientation)
        return encode_still(still, lossless=area <= max_lossless_pixels)
    drawn = area * len(animation.frames)
    return encode_animation(animation, lossless=drawn <= bounds.MAX_LOSSLESS_ANIMATION_PIXELS)


def _convert_webp(data: bytes) -> ConvertedImage:
    found = webp.read(data)
    area = found.width * found.height
    if len(found.durations) <= 1:
        lossless = found.lossless and area <= bounds.MAX_LOSSLESS_PIXELS
        return encode_still(decode_upright(data, "WEBP"), lossless=lossless)
    with open_only(data, "WEBP") as image:

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
        return encode_animation(animation, lossless=lossless)
