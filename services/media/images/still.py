import struct
import zlib
from io import BytesIO

from PIL import Image

from services.media.images import orientation
from services.media.images.bounds import check_canvas
from services.media.images.colours import displayable

# Pillow's decoders raise these for bytes that they can't decode.
DECODER_ERRORS = (
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
# Whole pixels are averaged first, down to this many times the size, since the filter is slower.
_REDUCING_GAP = 3.0
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def open_only(data: bytes, format_name: str) -> Image.Image:
    """Open an image with this decoder of Pillow's alone, whatever else the bytes might be."""
    image = Image.open(BytesIO(data), formats=[format_name])
    check_canvas(*image.size, f"{format_name} header")
    return image


def decode(data: bytes, format_name: str) -> Image.Image:
    """Decode the first picture to RGB or RGBA, with colours in sRGB, without turning it upright."""
    with open_only(data, format_name) as image:
        image.load()
        return displayable(image)


def decode_upright(data: bytes, format_name: str) -> Image.Image:
    with open_only(data, format_name) as image:
        image.load()
        turned = orientation.of_image(image)
        decoded = displayable(image)
    return upright(decoded, turned)


def upright(image: Image.Image, turned: int) -> Image.Image:
    """Turn an image of this orientation upright."""
    turn = _UPRIGHT.get(turned)
    return image if turn is None else image.transpose(turn)


def narrowed_size(size: tuple[int, int], width: int) -> tuple[int, int]:
    """Return the size that a picture of `size` has when it is as wide as this."""
    return width, max(1, round(size[1] * width / size[0]))


def narrowed(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=_REDUCING_GAP)
