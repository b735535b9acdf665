import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import chain, product

from PIL import ExifTags, Image, ImageChops, ImageCms

from services.attachments.images.outcome import check_canvas

_LEVELS = range(256)
# In 8-bit levels. A profile that moves no colour by more is sRGB under another name.
_MAX_ROUNDING_LEVELS = 2


def displayable(image: Image.Image) -> Image.Image:
    profile = image.info.get("icc_profile")
    if image.mode in ("I;16", "I"):
        # 16-bit grey is scaled to 8 bits; Pillow's own conversion clips at 255 instead.
        low_high = Image.frombytes("LA", image.size, image.convert("I;16").tobytes())
        key = image.info.get("transparency")
        image = low_high.getchannel("A")
        if isinstance(key, int):
            low = low_high.getchannel("L").point([255 * (level == key & 255) for level in _LEVELS])
            high = image.point([255 * (level == key >> 8) for level in _LEVELS])
            image.putalpha(ImageChops.invert(ImageChops.multiply(low, high)))
    if image.mode == "CMYK":
        return _converted(image, "RGB", profile)
    if image.mode in ("1", "L", "LA"):
        is_transparent = image.has_transparency_data
        alpha = _in_mode(image, "LA").getchannel("A") if is_transparent else None
        image.info.pop("transparency", None)
        grey = _converted(_in_mode(image, "L"), "RGB", profile)
        if alpha is not None:
            grey.putalpha(alpha)
        return grey
    mode = "RGBA" if image.has_transparency_data else "RGB"
    return _converted(_in_mode(image, mode), mode, profile)


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)


def _converted(image: Image.Image, mode: str, profile: bytes | None) -> Image.Image:
    transform = _to_srgb(profile, image.mode, mode) if profile else None
    if transform is None:
        return _in_mode(image, mode)
    if image.mode == mode:
        ImageCms.applyTransform(image, transform, inPlace=True)
        return image
    return ImageCms.applyTransform(image, transform) or image


def is_usable_profile(profile: bytes, mode: str) -> bool:
    """Return whether the profile can convert pixels of this mode to sRGB."""
    return _transform(profile, mode, "RGB") is not None


def _transform(profile: bytes, source: str, target: str) -> ImageCms.ImageCmsTransform | None:
    try:
        embedded, srgb = ImageCms.ImageCmsProfile(BytesIO(profile)), ImageCms.createProfile("sRGB")
        return ImageCms.buildTransform(embedded, srgb, source, target)
    except (ImageCms.PyCMSError, OSError, ValueError):
        # As in browsers, a broken profile costs the picture its exact colours, not its upload.
        return None


@lru_cache(maxsize=4)
def _to_srgb(profile: bytes, source: str, target: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform that converts pixels to sRGB.

    Returns ``None`` if the profile is sRGB itself or can't be used for pixels of this mode.
    """
    transform = _transform(profile, source, target)
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
# The EXIF orientation of an upright image. Other orientations tell viewers how to rotate or mirror
# the image. For example, 6 means a quarter turn clockwise.
_UPRIGHT_ORIENTATION = 1


def in_metadata(info: Mapping[str, bytes]) -> int:
    """Return the EXIF orientation, by the rules of Pillow's `exif_transpose`."""
    holder = Image.new("L", (1, 1))
    holder.info.update(info)
    try:
        value = holder.getexif().get(ExifTags.Base.Orientation, _UPRIGHT_ORIENTATION)
    except DECODER_ERRORS:
        # Broken metadata doesn't affect the pixels, and all metadata is dropped anyway.
        return _UPRIGHT_ORIENTATION
    return value if isinstance(value, int) else _UPRIGHT_ORIENTATION


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


@dataclass(slots=True)
class Picture:
    """An image file that is separated from its metadata.

    The decoder gets only the file without metadata, so broken metadata can't make it fail.

    Attributes:
        data: the file without its metadata.
        metadata: the colour profile, EXIF and XMP, by their names in Pillow's `Image.info`.
    """

    data: bytes = b""
    metadata: dict[str, bytes] = field(default_factory=dict)


def decode(data: bytes, format_name: str) -> Image.Image:
    """Decode the first picture to RGB or RGBA, with colours in sRGB, without turning it upright."""
    return _decode(Picture(data), format_name)


def decode_upright(picture: Picture, format_name: str) -> Image.Image:
    return upright(_decode(picture, format_name), in_metadata(picture.metadata))


def _decode(picture: Picture, format_name: str) -> Image.Image:
    with open_only(picture.data, format_name) as image:
        image.load()
        image.info.update(picture.metadata)
        return displayable(image)


def upright(image: Image.Image, turned: int) -> Image.Image:
    """Turn an image of this orientation upright."""
    turn = _UPRIGHT.get(turned)
    return image if turn is None else image.transpose(turn)


def narrowed_size(size: tuple[int, int], width: int) -> tuple[int, int]:
    """Return the size that a picture of `size` has when it is as wide as this."""
    return width, max(1, round(size[1] * width / size[0]))


def narrowed(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=_REDUCING_GAP)
