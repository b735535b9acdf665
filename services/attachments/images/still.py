"""Decodes, rotates and resizes single images, and converts their colours to sRGB."""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import chain, product

from PIL import ExifTags, Image, ImageChops, ImageCms

from services.attachments.images.outcome import check_canvas

# The errors that Pillow's decoders raise for invalid image files.
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
_LEVELS = range(256)
# A colour profile counts as sRGB if the conversion to sRGB changes each 8-bit value by at most
# ``_MAX_ROUNDING_LEVELS``.
_MAX_ROUNDING_LEVELS = 2
# The EXIF orientation of an upright image. The EXIF orientations 2 to 8 say how to rotate or mirror
# an image. For example, orientation 6 means a quarter turn clockwise.
_UPRIGHT_ORIENTATION = 1
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# To save time, Pillow shrinks an image with a fast filter first, down to this multiple of the
# target size.
_REDUCING_GAP = 3.0


@dataclass(slots=True)
class Picture:
    """An image file whose metadata has been separated from its pixels.

    The image decoder doesn't get the metadata, so broken metadata can't make the decoding fail. The
    keys of ``metadata`` are the names in Pillow's `Image.info`.
    """

    data: bytes = b""
    metadata: dict[str, bytes] = field(default_factory=dict)


def decode_image(data: bytes, format_name: str) -> Image.Image:
    """Decode the first image in a file to RGB or RGBA with sRGB colours, without rotating it."""
    return _decode_picture(Picture(data), format_name)


def decode_upright(picture: Picture, format_name: str) -> Image.Image:
    return rotate_upright(_decode_picture(picture, format_name), read_orientation(picture.metadata))


def _decode_picture(picture: Picture, format_name: str) -> Image.Image:
    with open_image(picture.data, format_name) as image:
        image.load()
        image.info.update(picture.metadata)
        return convert_to_srgb(image)


def open_image(data: bytes, format_name: str) -> Image.Image:
    """Open an image with the decoder for ``format_name``, without detecting the format."""
    image = Image.open(BytesIO(data), formats=[format_name])
    check_canvas(*image.size, f"{format_name} header")
    return image


def convert_to_srgb(image: Image.Image) -> Image.Image:
    profile = image.info.get("icc_profile")
    if image.mode in ("I;16", "I"):
        # Scale 16-bit grey pixels to 8 bits, because Pillow's own conversion clips values at 255.
        low_high = Image.frombytes("LA", image.size, image.convert("I;16").tobytes())
        key = image.info.get("transparency")
        image = low_high.getchannel("A")
        if isinstance(key, int):
            low = low_high.getchannel("L").point([255 * (level == key & 255) for level in _LEVELS])
            high = image.point([255 * (level == key >> 8) for level in _LEVELS])
            image.putalpha(ImageChops.invert(ImageChops.multiply(low, high)))
    if image.mode == "CMYK":
        return _apply_profile(image, "RGB", profile)
    if image.mode in ("1", "L", "LA"):
        is_transparent = image.has_transparency_data
        alpha = _convert_mode(image, "LA").getchannel("A") if is_transparent else None
        image.info.pop("transparency", None)
        grey = _apply_profile(_convert_mode(image, "L"), "RGB", profile)
        if alpha is not None:
            grey.putalpha(alpha)
        return grey
    mode = "RGBA" if image.has_transparency_data else "RGB"
    return _apply_profile(_convert_mode(image, mode), mode, profile)


def _convert_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)


def _apply_profile(image: Image.Image, mode: str, profile: bytes | None) -> Image.Image:
    transform = _build_srgb_transform(profile, image.mode, mode) if profile else None
    if transform is None:
        return _convert_mode(image, mode)
    if image.mode == mode:
        ImageCms.applyTransform(image, transform, inPlace=True)
        return image
    return ImageCms.applyTransform(image, transform) or image


@lru_cache(maxsize=4)
def _build_srgb_transform(
    profile: bytes, source: str, target: str
) -> ImageCms.ImageCmsTransform | None:
    """Return ``None`` if the profile is sRGB itself or doesn't fit the image's pixel format."""
    transform = _build_transform(profile, source, target)
    if transform is None:
        return None
    if source != target:
        return transform
    levels = bytes(chain.from_iterable(product(range(0, 256, 15), repeat=3)))
    before = Image.frombytes("RGB", (18 * 18, 18), levels).convert(source)
    after = before.copy()
    ImageCms.applyTransform(after, transform, inPlace=True)
    difference = ImageChops.difference(before.convert("RGB"), after.convert("RGB"))
    return None if max(difference.tobytes()) <= _MAX_ROUNDING_LEVELS else transform


def is_usable_profile(profile: bytes, mode: str) -> bool:
    return _build_transform(profile, mode, "RGB") is not None


def _build_transform(profile: bytes, source: str, target: str) -> ImageCms.ImageCmsTransform | None:
    try:
        embedded = ImageCms.ImageCmsProfile(BytesIO(profile))
        srgb = ImageCms.createProfile("sRGB")
        return ImageCms.buildTransform(embedded, srgb, source, target)
    except (ImageCms.PyCMSError, OSError, ValueError):
        # Like browsers, ignore a broken colour profile.
        return None


def read_orientation(info: Mapping[str, bytes]) -> int:
    holder = Image.new("L", (1, 1))
    holder.info.update(info)
    try:
        value = holder.getexif().get(ExifTags.Base.Orientation, _UPRIGHT_ORIENTATION)
    except DECODER_ERRORS:
        # Ignore broken image metadata, because metadata isn't stored anyway.
        return _UPRIGHT_ORIENTATION
    return value if isinstance(value, int) else _UPRIGHT_ORIENTATION


def rotate_upright(image: Image.Image, orientation: int) -> Image.Image:
    transposition = _TRANSPOSITIONS.get(orientation)
    return image if transposition is None else image.transpose(transposition)


def scale_size(size: tuple[int, int], width: int) -> tuple[int, int]:
    return width, max(1, round(size[1] * width / size[0]))


def resize_image(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=_REDUCING_GAP)
