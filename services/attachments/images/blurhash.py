"""BlurHash: the colours of an image in 28 characters, for the time until the image is there.

By the algorithm of https://github.com/woltapp/blurhash. The packages with compiled encoders lag
behind new releases of Python.
"""

import math
from collections.abc import Sequence
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The API, which shows what was encoded, does without Pillow.
    from PIL import Image

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"
_ACROSS, _DOWN = 4, 3
# The point at which sRGB turns from a line to a curve (IEC 61966-2-1), encoded and in linear light.
_KNEE, _LINEAR_KNEE = 0.04045, 0.0031308

_LINEAR = [
    share / 12.92 if share <= _KNEE else ((share + 0.055) / 1.055) ** 2.4
    for share in (value / 255 for value in range(256))
]


def blurhash(image: "Image.Image") -> str:
    """Return the 28 characters for an RGB image: four waves across and three down.

    The time grows with the pixels: some milliseconds for 32 by 32.
    """
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
        colour = (colour << 8) + _encoded(channel)
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


def tiles(text: str, across: int, down: int) -> list[list[str]]:
    """Return the colours of a BlurHash, such as "#9f2d16", in so many columns and rows."""
    digits = [_ALPHABET.index(character) for character in text]
    rows_of_waves, columns_of_waves = digits[0] // 9 + 1, digits[0] % 9 + 1
    step = (digits[1] + 1) / 166
    mean = _number(digits[2:6])
    amplitudes = [[_LINEAR[mean >> shift & 255] for shift in (16, 8, 0)]]
    for at in range(6, len(digits), 2):
        number = _number(digits[at : at + 2])
        roots = [number // 19**power % 19 / 9 - 1 for power in (2, 1, 0)]
        amplitudes.append([math.copysign(root * root, root) * step for root in roots])
    waves = [(x, y) for y in range(rows_of_waves) for x in range(columns_of_waves)]

    def colour(x: float, y: float) -> str:
        heights = [
            math.cos(math.pi * wave_x * x) * math.cos(math.pi * wave_y * y)
            for wave_x, wave_y in waves
        ]
        channels = zip(*amplitudes, strict=True)
        return "#" + "".join(f"{_encoded(_dot(each, heights)):02x}" for each in channels)

    return [
        [colour((column + 0.5) / across, (row + 0.5) / down) for column in range(across)]
        for row in range(down)
    ]


def _number(digits: Sequence[int]) -> int:
    number = 0
    for digit in digits:
        number = number * 83 + digit
    return number


def _encoded(linear: float) -> int:
    """Return a channel in linear light as sRGB, from 0 to 255."""
    value = max(0.0, min(1.0, linear))
    share = value * 12.92 if value <= _LINEAR_KNEE else 1.055 * value ** (1 / 2.4) - 0.055
    return int(share * 255 + 0.5)
