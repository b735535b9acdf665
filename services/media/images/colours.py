"""Converts every mode to which Pillow decodes, to 8-bit RGB or RGBA in sRGB."""

from functools import lru_cache
from io import BytesIO
from itertools import chain, product

from PIL import Image, ImageChops, ImageCms

_LEVELS = range(256)
# Of 8-bit levels. A profile that moves no colour by more is sRGB under another name.
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
    if image.mode in ("1", "L") and not image.has_transparency_data:
        return _converted(image.convert("L"), "RGB", profile)
    if image.mode == "LA" and profile:
        grey = _converted(image.getchannel("L"), "RGB", profile)
        grey.putalpha(image.getchannel("A"))
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


@lru_cache(maxsize=4)
def _to_srgb(profile: bytes, source: str, target: str) -> ImageCms.ImageCmsTransform | None:
    """Return the conversion; None if the profile is sRGB, or none for pixels of this mode."""
    try:
        transform = ImageCms.buildTransform(
            ImageCms.ImageCmsProfile(BytesIO(profile)),
            ImageCms.createProfile("sRGB"),
            source,
            target,
        )
    except (ImageCms.PyCMSError, OSError, ValueError):
        # As in browsers, a broken profile costs the picture its exact colours, not its upload.
        return None
    if source != target:
        return transform
    levels = bytes(chain.from_iterable(product(range(0, 256, 15), repeat=3)))
    before = Image.frombytes("RGB", (18 * 18, 18), levels).convert(source)
    after = before.copy()
    ImageCms.applyTransform(after, transform, inPlace=True)
    difference = ImageChops.difference(before.convert("RGB"), after.convert("RGB"))
    return None if max(difference.tobytes()) <= _MAX_ROUNDING_LEVELS else transform
