"""Encodes and decodes BlurHashes.

A BlurHash is a string of 28 characters that describes a blurred version of an image. The algorithm
comes from https://github.com/woltapp/blurhash. Pressroom uses no compiled package, because such
packages are slow to support new Python releases.
"""

import math
from collections.abc import Sequence
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Import Pillow only for type checks, because the API decodes BlurHashes and must not load
    # Pillow.
    from PIL import Image

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"
_WAVES_ACROSS = 4
_WAVES_DOWN = 3
# The values below which the sRGB transfer function is linear (IEC 61966-2-1).
_ENCODED_KNEE = 0.04045
_LINEAR_KNEE = 0.0031308
# The linear light of each of the 256 levels of an sRGB colour channel.
_LINEAR = [
    share / 12.92 if share <= _ENCODED_KNEE else ((share + 0.055) / 1.055) ** 2.4
    for share in (value / 255 for value in range(256))
]


def compute_blurhash(image: "Image.Image") -> str:
    """Return the BlurHash of an RGB image, in a few milliseconds for 32 by 32 pixels."""
    width, height = image.size
    across = [_cosines(wave, width) for wave in range(_WAVES_ACROSS)]
    down = [_cosines(wave, height) for wave in range(_WAVES_DOWN)]
    # The amplitudes of the BlurHash components for each colour channel, in linear light. The first
    # amplitude of a colour channel is its mean.
    channels = []
    for band in image.split():
        plane = [_LINEAR[value] for value in band.tobytes()]
        rows = [plane[start : start + width] for start in range(0, len(plane), width)]
        # Sum the pixels of each row first, and then combine the sums of all rows, to save
        # multiplications.
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
    text = _encode_base83(_WAVES_ACROSS - 1 + (_WAVES_DOWN - 1) * 9, 1) + _encode_base83(step, 1)
    colour = 0
    for channel in mean:
        colour = (colour << 8) + _encode_srgb(channel)
    text += _encode_base83(colour, 4)
    for wave in waves:
        number = 0
        for channel in wave:
            root = math.copysign(math.sqrt(abs(channel / ((step + 1) / 166))), channel)
            number = number * 19 + max(0, min(18, math.floor(root * 9 + 9.5)))
        text += _encode_base83(number, 2)
    return text


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(map(mul, left, right))


def _cosines(wave: int, length: int) -> list[float]:
    return [math.cos(math.pi * wave * at / length) for at in range(length)]


def _encode_base83(number: int, length: int) -> str:
    digits = [_ALPHABET[number // 83**power % 83] for power in range(length)]
    return "".join(reversed(digits))


def compute_tiles(blurhash: str, across: int, down: int) -> list[list[str]]:
    """Return the blurred image as rows of colours such as "#9f2d16"."""
    digits = [_ALPHABET.index(character) for character in blurhash]
    rows_of_waves = digits[0] // 9 + 1
    columns_of_waves = digits[0] % 9 + 1
    step = (digits[1] + 1) / 166
    mean = _join_digits(digits[2:6])
    amplitudes = [[_LINEAR[mean >> shift & 255] for shift in (16, 8, 0)]]
    for at in range(6, len(digits), 2):
        number = _join_digits(digits[at : at + 2])
        roots = [number // 19**power % 19 / 9 - 1 for power in (2, 1, 0)]
        amplitudes.append([math.copysign(root * root, root) * step for root in roots])
    waves = [(x, y) for y in range(rows_of_waves) for x in range(columns_of_waves)]

    def compute_colour(x: float, y: float) -> str:
        heights = [
            math.cos(math.pi * wave_x * x) * math.cos(math.pi * wave_y * y)
            for wave_x, wave_y in waves
        ]
        channels = zip(*amplitudes, strict=True)
        return "#" + "".join(f"{_encode_srgb(_dot(channel, heights)):02x}" for channel in channels)

    return [
        [compute_colour((column + 0.5) / across, (row + 0.5) / down) for column in range(across)]
        for row in range(down)
    ]


def _join_digits(digits: Sequence[int]) -> int:
    number = 0
    for digit in digits:
        number = number * 83 + digit
    return number


def _encode_srgb(linear: float) -> int:
    value = max(0.0, min(1.0, linear))
    share = value * 12.92 if value <= _LINEAR_KNEE else 1.055 * value ** (1 / 2.4) - 0.055
    return int(share * 255 + 0.5)
