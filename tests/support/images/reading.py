"""Reads small images pixel by pixel in plain Python, without the product's code."""

from collections.abc import Sequence

from PIL import Image

from tests.support.images.samples import open_image

Pixel = tuple[int, int, int, int]
CLEAR: Pixel = (0, 0, 0, 0)


def read_pixels(data: bytes) -> list[Pixel]:
    """Decode an image with Pillow, and return the RGBA values of its pixels, row by row."""
    with open_image(data) as image:
        image.load()
    return [
        _pixel(image, image.getpixel((x, y)))
        for y in range(image.height)
        for x in range(image.width)
    ]


def _pixel(image: Image.Image, value: object) -> Pixel:  # noqa: PLR0911 - one rule a line
    key = image.info.get("transparency")
    match image.mode, value:
        case "1" | "L", int(grey):
            return (grey, grey, grey, 0 if grey == key else 255)
        case "I;16" | "I", int(deep):
            return (deep >> 8, deep >> 8, deep >> 8, 255)
        case "P", int(index):
            return (*_palette(image)[index], _alpha(key, index))
        case "LA", (int(grey), int(alpha)):
            return (grey, grey, grey, alpha)
        case "RGB", (int(red), int(green), int(blue)):
            return (red, green, blue, 0 if value == key else 255)
        case "RGBA", (int(red), int(green), int(blue), int(alpha)):
            return (red, green, blue, alpha)
        case "CMYK", (int(cyan), int(magenta), int(yellow), int(black)):
            inks = (cyan, magenta, yellow)
            red, green, blue = (round((255 - ink) * (255 - black) / 255) for ink in inks)
            return (red, green, blue, 255)
    raise AssertionError(f"no rule for {image.mode} {value!r}")


def _palette(image: Image.Image) -> list[tuple[int, int, int]]:
    levels = image.getpalette("RGB") or []
    return list(zip(levels[::3], levels[1::3], levels[2::3], strict=True))


def _alpha(key: object, index: int) -> int:
    if isinstance(key, bytes):
        return key[index] if index < len(key) else 255
    return 0 if key == index else 255


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
