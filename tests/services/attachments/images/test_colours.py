"""Conversion of PNG colours to sRGB, from the chunks `cICP`, `iCCP`, `sRGB`, or `gAMA` and `cHRM`.

The expected colour levels were calculated from the published transfer curves and primaries.
"""

import struct
import zlib

import pytest

from services.attachments.isolation.converter import ConverterProcess
from tests.support.images.samples import (
    Rectangle,
    apng,
    chunk,
    open_image,
    png,
    wide_gamut_profile,
)

Levels = tuple[int, ...]
GREY = (128, 128, 128)
GREEN = (60, 200, 60)
PINK = (200, 30, 90)
D65 = (0.3127, 0.3290)
SRGB_POINTS = (*D65, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
P3_POINTS = (*D65, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060)
ADOBE_POINTS = (*D65, 0.64, 0.33, 0.21, 0.71, 0.15, 0.06)
MAX_ROUNDING_ERROR = 1


def cicp_chunk(*codes: int) -> bytes:
    return chunk(b"cICP", bytes(codes))


def gamma_chunk(value: float) -> bytes:
    return chunk(b"gAMA", struct.pack(">I", round(value * 100_000)))


def chromaticity_chunk(*values: float) -> bytes:
    return chunk(b"cHRM", struct.pack(">8I", *(round(value * 100_000) for value in values)))


def profile_chunk(method: int = 0) -> bytes:
    """Return a PNG chunk with a colour profile that swaps red and green."""
    return chunk(b"iCCP", b"x\0" + bytes([method]) + zlib.compress(wide_gamut_profile()))


SRGB_CHUNK = chunk(b"sRGB", b"\0")
P3_CHUNK = cicp_chunk(12, 13, 0, 1)


def convert_pixel(
    converter: ConverterProcess,
    extra: bytes,
    levels: Levels,
    *,
    colour: int = 2,
    depth: int = 8,
) -> Levels:
    row = struct.pack(f">{len(levels)}{'H' if depth > 8 else 'B'}", *levels)
    data = png(1, 1, b"\0" + row, colour=colour, depth=depth, extra=extra)
    value = open_image(converter.convert(data).data).convert("RGBA").getpixel((0, 0))
    assert isinstance(value, tuple)
    return value


def assert_near(levels: Levels, expected: Levels) -> None:
    assert max(abs(a - b) for a, b in zip(levels, expected, strict=True)) <= MAX_ROUNDING_ERROR, (
        levels
    )


CONVERSIONS = [
    (P3_CHUNK, GREEN, (0, 203, 11)),
    (P3_CHUNK, PINK, (218, 0, 89)),
    (cicp_chunk(1, 1, 0, 1), GREY, (140, 140, 140)),
    (cicp_chunk(9, 14, 0, 1), GREEN, (0, 216, 34)),
    (cicp_chunk(11, 17, 0, 1), GREY, (118, 118, 118)),
    (cicp_chunk(1, 8, 0, 1), GREY, (188, 188, 188)),
    (cicp_chunk(1, 13, 0, 0), (16, 126, 235), (0, 128, 255)),
    (gamma_chunk(1.0), GREY, (188, 188, 188)),
    (gamma_chunk(1.0), PINK, (229, 96, 160)),
    (gamma_chunk(0.55556), GREY, (146, 146, 146)),
    (gamma_chunk(1.0) + chromaticity_chunk(*P3_POINTS), GREEN, (94, 232, 121)),
    (gamma_chunk(0.4547) + chromaticity_chunk(*ADOBE_POINTS), PINK, (233, 24, 91)),
]


@pytest.mark.parametrize(("extra", "levels", "expected"), CONVERSIONS)
def test_png_colours_with_declared_colour_space_are_converted_to_srgb(
    converter: ConverterProcess, extra: bytes, levels: Levels, expected: Levels
) -> None:
    assert_near(convert_pixel(converter, extra, levels), (*expected, 255))


@pytest.mark.parametrize("levels", [GREY, GREEN, (3, 12, 250)])
@pytest.mark.parametrize(
    "extra",
    [
        cicp_chunk(1, 13, 0, 1),
        SRGB_CHUNK,
        SRGB_CHUNK + gamma_chunk(1.0) + chromaticity_chunk(*P3_POINTS),
        gamma_chunk(1.0) + SRGB_CHUNK,
        gamma_chunk(0.45455),
        gamma_chunk(0.45),
        gamma_chunk(0.45455) + chromaticity_chunk(*SRGB_POINTS),
        chromaticity_chunk(*P3_POINTS),
        gamma_chunk(0.0),
        gamma_chunk(0.45455) + chromaticity_chunk(*[0.0] * 8),
        gamma_chunk(0.45455) + chromaticity_chunk(*D65, *[0.3, 0.3] * 3),
        chunk(b"PLTE", bytes(3)) + gamma_chunk(1.0),
    ],
)
def test_png_colours_are_unchanged_if_srgb_or_without_valid_declaration(
    converter: ConverterProcess, extra: bytes, levels: tuple[int, ...]
) -> None:
    assert convert_pixel(converter, extra, levels) == (*levels, 255)


SWAPPED_GREEN = (200, 60, 60)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (gamma_chunk(1.0) + SRGB_CHUNK + profile_chunk() + P3_CHUNK, (0, 203, 11)),
        (gamma_chunk(1.0) + SRGB_CHUNK + profile_chunk(), SWAPPED_GREEN),
        (profile_chunk() + cicp_chunk(2, 2, 0, 1), SWAPPED_GREEN),
        (profile_chunk() + cicp_chunk(12, 13, 1, 1), SWAPPED_GREEN),
        (profile_chunk() + cicp_chunk(12, 13, 0, 2), SWAPPED_GREEN),
        (profile_chunk() + cicp_chunk(12, 99, 0, 1), SWAPPED_GREEN),
        (profile_chunk() + chunk(b"cICP", b"\x0c\x0d\0"), SWAPPED_GREEN),
        (profile_chunk(method=1) + SRGB_CHUNK + gamma_chunk(1.0), GREEN),
        (profile_chunk(method=1) + gamma_chunk(1.0), (133, 229, 133)),
        (chunk(b"sRGB", b"\4") + gamma_chunk(1.0), (133, 229, 133)),
        (chunk(b"sRGB", b"") + gamma_chunk(1.0), (133, 229, 133)),
    ],
)
def test_first_valid_png_colour_declaration_wins_in_specification_order(
    converter: ConverterProcess, extra: bytes, expected: Levels
) -> None:
    *levels, _ = convert_pixel(converter, extra, GREEN)
    # Swapping the primaries doesn't swap the levels exactly.
    tolerance = 60 if expected == SWAPPED_GREEN else MAX_ROUNDING_ERROR
    assert max(abs(a - b) for a, b in zip(levels, expected, strict=True)) <= tolerance


@pytest.mark.parametrize(
    ("colour", "depth", "levels", "extra", "expected"),
    [
        (0, 8, (128,), gamma_chunk(1.0), (188, 188, 188, 255)),
        (0, 8, (128,), P3_CHUNK + gamma_chunk(1.0), (128, 128, 128, 255)),
        (0, 8, (128,), profile_chunk() + gamma_chunk(1.0), (188, 188, 188, 255)),
        (0, 8, (128,), gamma_chunk(1.0) + chunk(b"tRNS", b"\0\x80"), (188, 188, 188, 0)),
        (4, 8, (128, 77), gamma_chunk(1.0), (188, 188, 188, 77)),
        (0, 16, (128 * 257,), gamma_chunk(1.0), (188, 188, 188, 255)),
        (2, 16, tuple(level * 257 for level in GREEN), P3_CHUNK, (0, 203, 11, 255)),
        (6, 8, (*GREEN, 77), P3_CHUNK, (0, 203, 11, 77)),
        (
            *(3, 8, (1,)),
            P3_CHUNK + chunk(b"PLTE", bytes(3) + bytes(GREEN)) + chunk(b"tRNS", b"\xff\x4d"),
            (0, 203, 11, 77),
        ),
    ],
)
def test_grey_palette_alpha_and_16_bit_png_pixels_are_converted_to_srgb(
    converter: ConverterProcess,
    *,
    colour: int,
    depth: int,
    levels: Levels,
    extra: bytes,
    expected: Levels,
) -> None:
    assert_near(convert_pixel(converter, extra, levels, colour=colour, depth=depth), expected)


def test_interlaced_and_animated_png_pixels_are_converted_to_srgb(
    converter: ConverterProcess,
) -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 1))
    plain = png(1, 1, b"\0" + bytes(GREEN), colour=2, extra=P3_CHUNK)
    interlaced = plain[:8] + header + plain[8 + len(header) :]
    frames = [Rectangle((0, 0, 20, 10), (*levels, 255)) for levels in (GREEN, PINK)]
    animation = apng((20, 10), frames)
    header_end = 8 + len(header)
    for data, expected in (
        (interlaced, [(0, 203, 11)]),
        (animation[:header_end] + P3_CHUNK + animation[header_end:], [(0, 203, 11), (218, 0, 89)]),
    ):
        image = open_image(converter.convert(data).data)
        for number, levels in enumerate(expected):
            image.seek(number)
            value = image.convert("RGB").getpixel((0, 0))
            assert isinstance(value, tuple)
            assert_near(value, levels)


@pytest.mark.parametrize(("curve", "white"), [(16, 148), (18, 191)])
def test_hdr_curves_keep_brightness_order_and_show_white_as_nearly_white(
    converter: ConverterProcess, curve: int, white: int
) -> None:
    red_levels = [
        convert_pixel(converter, cicp_chunk(9, curve, 0, 1), (level,) * 3)[0]
        for level in (0, 40, 80, 110, white, 200, 255)
    ]
    assert red_levels == sorted(red_levels)
    assert (red_levels[0], red_levels[-1]) == (0, 255)
    assert 235 <= red_levels[4] <= 250
