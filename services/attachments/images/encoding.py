import math
from collections.abc import Sequence
from io import BytesIO
from operator import mul

from PIL import Image

from services.attachments.images import containers
from services.attachments.images.animation import Animation, Playback
from services.attachments.images.outcome import ConvertedImage

# This is our own encoder: the packages with compiled ones lag behind new releases of Python.

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"
_ACROSS, _DOWN = 4, 3
# The point at which sRGB turns from a line to a curve (IEC 61966-2-1), encoded and in linear light.
_KNEE, _LINEAR_KNEE = 0.04045, 0.0031308

_LINEAR = [
    share / 12.92 if share <= _KNEE else ((share + 0.055) / 1.055) ** 2.4
    for share in (value / 255 for value in range(256))
]


def blurhash(image: Image.Image) -> str:
    """Return the 28 characters for a small RGB image: four waves across and three down."""
    # Each wave's amplitude in linear light, row by row of waves; the first is the mean.
    width, height = image.size
    across = [_cosines(wave, width) for wave in range(_ACROSS)]
    down = [_cosines(wave, height) for wave in range(_DOWN)]
    channels = []
    for band in image.split():
        plane = [_LINEAR[value] for value in band.tobytes()]
        rows = [plane[start : start + width] for start in range(0, len(plane), width)]
        # Sums along each row first, then down the columns of those sums: far fewer products.
        sums = [[_dot(row, cosines) for row in rows] for cosines in across]
        amplitudes = [
            _dot(column, cosines) * (1 if x == y == 0 else 2) / len(plane)
            for y, cosines in enumerate(down)
            for x, column in enumerate(sums)
        ]
        channels.append(amplitudes)
    mean, *waves = zip(*channels, strict=True)
    largest = max(abs(channel) for wave in waves for channel in wave)
    step = max(0, min(82, math.floor(largest * 166 - 0.5)))
    text = _base83(_ACROSS - 1 + (_DOWN - 1) * 9, 1) + _base83(step, 1)
    colour = 0
    for channel in mean:
        value = max(0.0, min(1.0, channel))
        share = value * 12.92 if value <= _LINEAR_KNEE else 1.055 * value ** (1 / 2.4) - 0.055
        colour = (colour << 8) + int(share * 255 + 0.5)
    text += _base83(colour, 4)
    for wave in waves:
        number = 0
        for channel in wave:
            root = math.copysign(math.sqrt(abs(channel / ((step + 1) / 166))), channel)
            number = number * 19 + max(0, min(18, math.floor(root * 9 + 9.5)))
        text += _base83(number, 2)
    return text


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(map(mul, left, right))


def _cosines(wave: int, length: int) -> list[float]:
    return [math.cos(math.pi * wave * at / length) for at in range(length)]


def _base83(number: int, length: int) -> str:
    digits = [_ALPHABET[number // 83**power % 83] for power in range(length)]
    return "".join(reversed(digits))


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
