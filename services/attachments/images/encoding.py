from io import BytesIO

from PIL import Image

from services.attachments.images import containers
from services.attachments.images.animation import Animation, Playback
from services.attachments.images.blurhash import blurhash
from services.attachments.images.outcome import ConvertedImage

# Chosen by measurement: docs/decisions/0003-image-encoding.md has the table.
_LOSSY = {"quality": 80, "method": 4}
_LOSSLESS = {"lossless": True, "quality": 50, "method": 4}
_ANIMATION_LOSSY = {"quality": 80, "method": 2}
_ANIMATION_LOSSLESS = {"lossless": True, "quality": 25, "method": 3}
_BLURHASH_SIDE = 32
_BLURHASH_SAMPLES = 8


def encode_still(image: Image.Image, *, lossless: bool) -> ConvertedImage:
    """Encode an RGB or RGBA image. Lossless also keeps the colours of transparent pixels."""
    data = _webp(image, exact=True, **_LOSSLESS) if lossless else lossy_webp(image)
    return ConvertedImage(data, "image/webp", *image.size, 1, _blurhash(image))


def lossy_webp(image: Image.Image) -> bytes:
    return _webp(image, **_LOSSY)


def encode_animation(animation: Animation, *, lossless: bool) -> ConvertedImage:
    canvas = Playback(animation)
    placeholder = _blurhash(canvas)
    data = animated_webp(canvas, animation.plays, lossless=lossless)
    # The encoder merges equal neighbours, so the frames are counted in its output.
    frames = max(1, len(containers.read_webp(data).durations))
    return ConvertedImage(data, "image/webp", *canvas.size, frames, placeholder)


def animated_webp(canvas: Playback, plays: int, *, lossless: bool) -> bytes:
    settings = _ANIMATION_LOSSLESS if lossless else _ANIMATION_LOSSY
    shown = {"duration": canvas.durations, "loop": plays, "background": (0, 0, 0, 0)}
    encoded = _webp(canvas, save_all=True, **shown, **settings)
    return containers.with_alpha_declared(encoded)


def encode_icon(image: Image.Image) -> ConvertedImage:
    out = BytesIO()
    image.save(out, "PNG", icc_profile=None, exif=b"")
    return ConvertedImage(out.getvalue(), "image/png", *image.size, 1, _blurhash(image))


def _webp(image: Image.Image, **settings: object) -> bytes:
    out = BytesIO()
    image.save(out, "WEBP", icc_profile=None, exif=b"", xmp=b"", **settings)
    return out.getvalue()


def _blurhash(image: Image.Image) -> str:
    """Make the BlurHash of a few pixels, on white: four by three waves hold no more detail."""
    side = _BLURHASH_SIDE * _BLURHASH_SAMPLES
    sample = image.resize((side, side), Image.Resampling.NEAREST)
    if sample.mode == "RGBA":
        white = Image.new("RGBA", sample.size, "white")
        white.alpha_composite(sample)
        sample = white
    return blurhash(sample.convert("RGB").reduce(_BLURHASH_SAMPLES))
