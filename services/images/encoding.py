from io import BytesIO

import blurhash
from PIL import Image

from services.images import webp
from services.images.animation import Animation, Playback, durations
from services.images.limits import MAX_LOSSLESS_PIXELS
from services.images.outcome import Converted

QUALITY = 80
_METHOD_LOSSY = 4
_METHOD_LOSSLESS = 4
_EFFORT_LOSSLESS = 50
_BLURHASH_SIDE = 32


def encode_still(image: Image.Image, *, lossless: bool) -> Converted:
    """`image` in RGB or RGBA. Lossless keeps the colours under full transparency as well."""
    out = BytesIO()
    if lossless and image.width * image.height <= MAX_LOSSLESS_PIXELS:
        image.save(
            out,
            "WEBP",
            lossless=True,
            exact=True,
            quality=_EFFORT_LOSSLESS,
            method=_METHOD_LOSSLESS,
            exif=b"",
            xmp=b"",
            icc_profile=None,
        )
    else:
        image.save(
            out, "WEBP", quality=QUALITY, method=_METHOD_LOSSY, exif=b"", xmp=b"", icc_profile=None
        )
    return Converted(out.getvalue(), "image/webp", "webp", *image.size, 1, _blurhash(image))


def encode_animation(animation: Animation, *, lossless: bool) -> Converted:
    canvas = Playback(animation)
    placeholder = _blurhash(canvas)
    lossless = lossless and canvas.width * canvas.height <= MAX_LOSSLESS_PIXELS
    out = BytesIO()
    canvas.save(
        out,
        "WEBP",
        save_all=True,
        duration=durations(animation.frames),
        loop=animation.plays,
        background=(0, 0, 0, 0),
        lossless=lossless,
        quality=_EFFORT_LOSSLESS if lossless else QUALITY,
        method=_METHOD_LOSSLESS if lossless else _METHOD_LOSSY,
    )
    frames = max(1, len(webp.read(out.getvalue()).durations))
    return Converted(out.getvalue(), "image/webp", "webp", *canvas.size, frames, placeholder)


def encode_icon(image: Image.Image) -> Converted:
    out = BytesIO()
    image.save(out, "PNG", icc_profile=None, exif=b"")
    return Converted(out.getvalue(), "image/png", "png", *image.size, 1, _blurhash(image))


def _blurhash(image: Image.Image) -> str:
    """Of a handful of pixels on white: four by three waves hold no more detail than that."""
    sample = image.resize((8 * _BLURHASH_SIDE, 8 * _BLURHASH_SIDE), Image.Resampling.NEAREST)
    if sample.mode == "RGBA":
        white = Image.new("RGBA", sample.size, "white")
        white.alpha_composite(sample)
        sample = white
    small = sample.convert("RGB").reduce(8)
    return str(blurhash.encode(small, x_components=4, y_components=3))
