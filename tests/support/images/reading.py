"""Reads small images pixel by pixel in plain Python, without the product's code."""

from collections.abc import Sequence

Pixel = tuple[int, int, int, int]
CLEAR: Pixel = (0, 0, 0, 0)


def level_differences(actual: Sequence[Pixel], expected: Sequence[Pixel]) -> list[int]:
    """Compare two images, and return the difference of each channel of each pixel.

    All fully transparent pixels count as equal, because their colour is invisible.
    """
    assert len(actual) == len(expected)
    return [
        abs(actual_level - expected_level)
        for actual_pixel, expected_pixel in zip(actual, expected, strict=True)
        for actual_level, expected_level in zip(
            _clear_if_transparent(actual_pixel), _clear_if_transparent(expected_pixel), strict=True
        )
    ]


def _clear_if_transparent(pixel: Pixel) -> Pixel:
    return pixel if pixel[3] else CLEAR
