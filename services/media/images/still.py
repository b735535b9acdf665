import struct
from collections.abc import Callable
from io import BytesIO

from PIL import ExifTags, Image

from services.media.images.bounds import check_canvas
from services.media.images.colours import displayable

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
        orientation = _orientation(image.getexif)
        decoded = displayable(image)
    return upright(decoded, orientation)


def upright(image: Image.Image, orientation: int) -> Image.Image:
    turn = _UPRIGHT.get(orientation)
    return image if turn is None else image.transpose(turn)


def orientation_in(exif: bytes) -> int:
    """Return the orientation that a bare EXIF block names, or 1 (upright)."""

    def parsed() -> Image.Exif:
        block = Image.Exif()
        block.load(exif)
        return block

    return _orientation(parsed) if exif else 1


def _orientation(read: Callable[[], Image.Exif]) -> int:
    try:
        value = read().get(ExifTags.Base.Orientation, 1)
    except (SyntaxError, ValueError, TypeError, KeyError, struct.error, OSError):
        # Metadata are dropped in any case, and the pixels are good.
        return 1
    return value if isinstance(value, int) else 1
