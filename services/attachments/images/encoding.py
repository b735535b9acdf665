"""Encodes converted images as WebP or PNG."""

from io import BytesIO

from PIL import Image

from services.attachments.images import webp
from services.attachments.images.animation import Animation, Playback
from services.attachments.images.blurhash import compute_blurhash
from services.attachments.images.outcome import ConvertedImage

# The settings of the WebP encoder, which are explained in docs/decisions/0003-image-encoding.md.
_LOSSY_QUALITY = 80
_LOSSY_METHOD = 4
_LOSSLESS_SETTINGS = {"lossless": True, "quality": 50, "method": 4}
_LOSSY_ANIMATION_SETTINGS = {"quality": 80, "method": 2}
_LOSSLESS_ANIMATION_SETTINGS = {"lossless": True, "quality": 25, "method": 3}
_BLURHASH_SIDE = 32
_BLURHASH_SAMPLES = 8


def encode_still(image: Image.Image, *, lossless: bool) -> ConvertedImage:
    """Encode an image as WebP. Lossless encoding preserves colours of fully transparent pixels."""
    data = (
        _encode_webp(image, exact=True, **_LOSSLESS_SETTINGS)
        if lossless
        else encode_lossy_webp(image)
    )
    return ConvertedImage(data, "image/webp", *image.size, 1, _compute_sampled_blurhash(image))


def encode_lossy_webp(image: Image.Image, *, quality: int = _LOSSY_QUALITY) -> bytes:
    return _encode_webp(image, quality=quality, method=_LOSSY_METHOD)


def encode_animation(animation: Animation, *, lossless: bool) -> ConvertedImage:
    playback = Playback(animation)
    placeholder = _compute_sampled_blurhash(playback)
    data = encode_animated_webp(playback, animation.plays, lossless=lossless)
    # Count the frames in the encoded file, because the encoder merges equal consecutive frames.
    frames = max(1, len(webp.read_webp(data).durations))
    return ConvertedImage(data, "image/webp", *playback.size, frames, placeholder)


def encode_animated_webp(playback: Playback, plays: int, *, lossless: bool) -> bytes:
    settings = _LOSSLESS_ANIMATION_SETTINGS if lossless else _LOSSY_ANIMATION_SETTINGS
    playback_settings = {"duration": playback.durations, "loop": plays, "background": (0, 0, 0, 0)}
    encoded = _encode_webp(playback, save_all=True, **playback_settings, **settings)
    return webp.declare_alpha(encoded)


def encode_icon(image: Image.Image) -> ConvertedImage:
    output = BytesIO()
    image.save(output, "PNG", icc_profile=None, exif=b"")
    return ConvertedImage(
        output.getvalue(), "image/png", *image.size, 1, _compute_sampled_blurhash(image)
    )


def _encode_webp(image: Image.Image, **settings: object) -> bytes:
    output = BytesIO()
    image.save(output, "WEBP", icc_profile=None, exif=b"", xmp=b"", **settings)
    return output.getvalue()


def _compute_sampled_blurhash(image: Image.Image) -> str:
    """Return the BlurHash of a small copy with enough detail. Transparent pixels are white."""
    side = _BLURHASH_SIDE * _BLURHASH_SAMPLES
    sample = image.resize((side, side), Image.Resampling.NEAREST)
    if sample.mode == "RGBA":
        white = Image.new("RGBA", sample.size, "white")
        white.alpha_composite(sample)
        sample = white
    return compute_blurhash(sample.convert("RGB").reduce(_BLURHASH_SAMPLES))
