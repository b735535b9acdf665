"""Tests that images with damaged metadata or colour profiles are accepted in each format."""

import struct
import zlib
from collections.abc import Callable
from io import BytesIO

import pytest
from PIL import Image

from services.attachments.images.conversion import convert_image
from services.attachments.images.outcome import UnreadableImage
from tests.support.images.samples import (
    BLUE,
    GREEN,
    PNG_SIGNATURE,
    RED,
    WHITE,
    GifFrame,
    Rectangle,
    apng,
    bitmap,
    chunk,
    encode_animation,
    encoded,
    gif,
    icon,
    open_image,
    picture,
    png,
    timeline,
    wide_gamut_profile,
)

GREY_LEVEL = 128
SIZE = (20, 10)
Pixel = tuple[int, ...]


def damage_checksum(name: bytes, body: bytes) -> bytes:
    """Return a PNG chunk with a wrong checksum."""
    damaged_chunk = bytearray(chunk(name, body))
    damaged_chunk[-1] ^= 1
    return bytes(damaged_chunk)


def grey_png(extra: bytes = b"", *, after: bytes = b"") -> bytes:
    """Return a grey PNG file with additional chunks.

    ``extra``: the PNG chunks to insert before the pixel data. ``after``: the PNG chunks to insert
    after the pixel data.
    """
    data = png(2, 1, b"\0" + bytes([GREY_LEVEL] * 6), colour=2, extra=extra)
    end = len(data) - len(chunk(b"IEND"))
    return data[:end] + after + data[end:]


def convert_pixel(data: bytes, position: tuple[int, int] = (0, 0)) -> Pixel:
    value = open_image(convert_image(data).data).convert("RGBA").getpixel(position)
    assert isinstance(value, tuple)
    return value


ANCILLARY_CHUNKS = [
    (b"tEXt", b"Comment\0x"),
    (b"zTXt", b"Comment\0\0" + zlib.compress(b"x")),
    (b"zTXt", b"Comment\0\7not zlib"),
    (b"zTXt", b"Comment\0\0" + zlib.compress(bytes(9_000_000))),
    (b"iTXt", b"\0\1\7"),
    (b"eXIf", b"MM\0*\xff\xff\xff\xff"),
    (b"tIME", b"\xff"),
    (b"bKGD", b""),
    (b"hIST", b"\0"),
    (b"pHYs", b"\0"),
    (b"sPLT", b"x"),
    (b"sBIT", b"\0\0\0\0\0\0\0"),
    (b"iCCP", b""),
    (b"iCCP", b"x\0\1" + zlib.compress(wide_gamut_profile())),
    (b"iCCP", b"x\0\0" + zlib.compress(wide_gamut_profile())[:99]),
    (b"iCCP", b"x\0\0" + zlib.compress(bytes(9_000_000))),
    (b"cICP", b"\0"),
    (b"sRGB", b"\xff\xff"),
    (b"gAMA", b"\0\0"),
    (b"gAMA", b"\xff\xff\xff\xff"),
    (b"cHRM", bytes(32)),
    (b"acTL", b"\0"),
    (b"xyZw", b"anything"),
]


@pytest.mark.parametrize("make_chunk", [chunk, damage_checksum])
@pytest.mark.parametrize(("name", "body"), ANCILLARY_CHUNKS)
def test_flawed_ancillary_png_chunk_leaves_pixels_unchanged(
    name: bytes, body: bytes, make_chunk: Callable[[bytes, bytes], bytes]
) -> None:
    flawed = make_chunk(name, body)
    for data in (grey_png(flawed), grey_png(flawed * 2), grey_png(after=flawed)):
        assert convert_pixel(data) == (GREY_LEVEL, GREY_LEVEL, GREY_LEVEL, 255)


def test_wrong_checksum_of_png_end_chunk_leaves_pixels_unchanged() -> None:
    data = grey_png()
    assert convert_pixel(data[:-12] + damage_checksum(b"IEND", b"") + b"more") == (
        GREY_LEVEL,
        GREY_LEVEL,
        GREY_LEVEL,
        255,
    )


@pytest.mark.parametrize("name", [b"IHDR", b"PLTE", b"IDAT"])
def test_png_with_wrong_checksum_of_an_essential_chunk_is_rejected(name: bytes) -> None:
    data = png(1, 1, b"\0\0", colour=3, extra=chunk(b"PLTE", bytes(RED)))
    position = data.index(name)
    end = position + 4 + int.from_bytes(data[position - 4 : position], "big")
    broken = data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :]
    assert convert_pixel(data) == (*RED, 255)
    with pytest.raises(UnreadableImage, match="checksum"):
        convert_image(broken)


def test_indexed_png_without_palette_is_rejected() -> None:
    with pytest.raises(UnreadableImage, match="no palette"):
        convert_image(png(1, 1, b"\0\0", colour=3))


PALETTE = chunk(b"PLTE", bytes((*RED, *BLUE)))


@pytest.mark.parametrize(
    ("extra", "alpha"),
    [
        (PALETTE + chunk(b"tRNS", b"\x07"), 7),
        (PALETTE + damage_checksum(b"tRNS", b"\x07"), 255),
        (PALETTE + chunk(b"tRNS", b"\x07") * 2, 7),
        (PALETTE + chunk(b"tRNS", b""), 255),
        (PALETTE + chunk(b"tRNS", b"\x07" * 3), 255),
        (PALETTE + chunk(b"tRNS", b"\x07" * 999), 255),
        (chunk(b"tRNS", b"\x07") + PALETTE, 255),
    ],
)
def test_flawed_palette_transparency_of_png_is_ignored(extra: bytes, alpha: int) -> None:
    assert convert_pixel(png(1, 1, b"\0\0", colour=3, extra=extra)) == (*RED, alpha)


@pytest.mark.parametrize(
    ("colour", "row", "key", "alpha"),
    [
        (0, b"\x80", b"\0\x80", 0),
        (0, b"\x80", b"\xff\x80", 0),
        (0, b"\x80", b"\x80", 255),
        (2, b"\x80\x80\x80", b"\0\x80\0\x80\0\x80", 0),
        (2, b"\x80\x80\x80", b"\0\x80", 255),
        (6, b"\x80\x80\x80\xff", b"\0\x80\0\x80\0\x80", 255),
    ],
)
def test_png_transparent_colour_of_wrong_size_or_mode_is_ignored(
    colour: int, row: bytes, key: bytes, alpha: int
) -> None:
    data = png(1, 1, b"\0" + row, colour=colour, extra=chunk(b"tRNS", key))
    assert convert_pixel(data) == (GREY_LEVEL, GREY_LEVEL, GREY_LEVEL, alpha)


def test_animation_ends_before_the_frame_with_a_wrong_checksum() -> None:
    colours = [(level, 9, 60, 255) for level in (80, 150, 220)]
    data = apng(SIZE, [Rectangle((0, 0, *SIZE), colour) for colour in colours])
    for name, expected_colours in ((b"fcTL", colours[:2]), (b"fdAT", colours[:2])):
        position = data.rindex(name)
        end = position + 4 + int.from_bytes(data[position - 4 : position], "big")
        broken = data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :]
        assert [colour for colour, _ in timeline(convert_image(broken).data)] == expected_colours


def test_large_colour_profile_is_applied_but_oversized_profile_is_ignored() -> None:
    for size, expected in ((1_300_000, GREEN), (9_000_000, RED)):
        profile = struct.pack(">I", size) + wide_gamut_profile()[4:].ljust(size - 4, b"\0")
        profile_chunk = chunk(b"iCCP", b"x\0\0" + zlib.compress(profile))
        red, green, _, _ = convert_pixel(
            png(1, 1, b"\0" + bytes(RED), colour=2, extra=profile_chunk)
        )
        assert (red > green) == (expected == RED)


def jpeg_segment(marker: int, body: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


@pytest.mark.parametrize(
    "flawed",
    [
        jpeg_segment(0xE0, b"JFIF\0"),
        jpeg_segment(0xE0, b"JFXX\0\x10\xff"),
        jpeg_segment(0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xff"),
        jpeg_segment(0xE1, b"Exif\0\0"),
        jpeg_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0\xff<"),
        jpeg_segment(0xE2, b"ICC_PROFILE\0"),
        jpeg_segment(0xE2, b"ICC_PROFILE\0\1\2x"),
        jpeg_segment(0xE2, b"ICC_PROFILE\0\0\0x" * 9),
        jpeg_segment(0xE2, b"MPF\0II*\0\xff\xff\xff\xff"),
        jpeg_segment(0xE2, b"MPF\0" + bytes(40)),
        jpeg_segment(0xED, b"Photoshop 3.0\x008BIM\4\4\xff"),
        jpeg_segment(0xEE, b"Adobe"),
        jpeg_segment(0xEF, b""),
        jpeg_segment(0xFE, b"\0\xff\xff"),
    ],
)
def test_flawed_jpeg_metadata_segment_leaves_pixels_unchanged(flawed: bytes) -> None:
    intact = encoded(picture(), "JPEG")
    data = intact[:2] + flawed * 2 + intact[2:]
    assert convert_image(data).data == convert_image(intact).data


def test_jpeg_profile_and_orientation_are_applied_despite_flawed_metadata() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    red = Image.new("RGB", (64, 32), RED)
    data = encoded(red, "JPEG", exif=exif, icc_profile=wide_gamut_profile() + bytes(99_999))
    result = convert_image(data[:2] + jpeg_segment(0xE2, b"MPF\0II*\0") + data[2:])
    assert (result.width, result.height) == (32, 64)
    red_level, green_level, _, _ = convert_pixel(data)
    assert green_level > red_level


@pytest.mark.parametrize(
    "flawed",
    [
        b"!\xff\0",
        b"!\xff\3abc\0",
        b"!\xff\x0bNETSCAPE2.0\0",
        b"!\xff\x0bNETSCAPE2.0\1\1\0",
        b"!\xfe\0",
        b"!\xfe\5\0\xff;,!\0",
        b"!\x01\1x\0",
        b"!\x99\2xy\0",
        b"!\xf9\1\0\0",
        b"\0\0\0",
    ],
)
def test_flawed_gif_extension_leaves_pixels_unchanged(flawed: bytes) -> None:
    data = gif(SIZE, [GifFrame((0, 0, *SIZE), 3)])
    position = data.index(b"!\xf9")
    assert convert_pixel(data[:position] + flawed + data[position:]) == (*WHITE, 255)
    assert convert_pixel(data[:-1] + flawed + b";") == (*WHITE, 255)


def test_gif_shows_frames_before_the_first_unknown_block() -> None:
    data = gif(SIZE, [GifFrame((0, 0, *SIZE), index) for index in (0, 1)])
    assert [colour for colour, _ in timeline(convert_image(data[:-1] + b"junk").data)] == [
        (*RED, 255),
        (*GREEN, 255),
    ]
    position = data.index(b"!\xf9")
    with pytest.raises(UnreadableImage, match="invalid block"):
        convert_image(data[:position] + b"junk" + data[position:])


# A chunk with a length of 99 extends beyond the end of the file.
WEBP_FLAWS = [(b"what", 3)] + [(n, m) for n in (b"EXIF", b"XMP ", b"ICCP") for m in (0, 3, 99)]


@pytest.mark.parametrize(("name", "length"), WEBP_FLAWS)
def test_flawed_webp_metadata_chunk_leaves_pixels_unchanged(name: bytes, length: int) -> None:
    extended: dict[str, object] = {"xmp": b"<x:xmpmeta/>", "lossless": True}
    still = encoded(picture(), "WEBP", **extended)
    for intact in (still, encode_animation("WEBP", (RED, BLUE), (50, 60), **extended)):
        flawed = name + struct.pack("<I", length) + b"\xff\xff\xff\0"[: min(length + 1, 4)]
        body = intact[8:] + (flawed if length else flawed[:8])
        data = b"RIFF" + struct.pack("<I", len(body)) + body
        assert convert_image(data).data == convert_image(intact).data


BROKEN_PNG = PNG_SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 99, 99, 8, 6, 0, 0, 0))


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        bytes(40),
        bytes(range(64)),
        PNG_SIGNATURE,
        BROKEN_PNG.ljust(99, b"\0"),
        BROKEN_PNG + chunk(b"IDAT", b"no pixels") + chunk(b"IEND"),
        BROKEN_PNG.replace(b"\0\0\0\x63", b"\0\1\0\0"),
        bitmap((0, 0, 255), 24, side=64)[:99],
    ],
)
def test_icon_with_an_unreadable_image_is_converted_from_its_best_readable_image(
    bad: bytes,
) -> None:
    small = bitmap((0, 255, 0), 24, side=16)
    large = bitmap((255, 0, 0), 24)
    for images in ((bad, small, large), (small, large, bad)):
        result = convert_image(icon(*((24, body) for body in images)))
        assert (result.width, result.height) == (32, 32)
        assert open_image(result.data).convert("RGB").getpixel((5, 5)) == BLUE
    with pytest.raises(UnreadableImage):
        convert_image(icon((24, bad), (24, bad)))


@pytest.mark.parametrize(
    ("offset", "size"), [(10**6, 99), (0, 2**32 - 1), (2**32 - 1, 2**32 - 1), (38, 10**6)]
)
@pytest.mark.parametrize("number", [0, 1])
def test_icon_entry_beyond_the_end_of_the_file_is_skipped(
    number: int, offset: int, size: int
) -> None:
    body = (24, bitmap((255, 0, 0), 24))
    data = bytearray(icon(body, body))
    struct.pack_into("<II", data, 6 + 16 * number + 8, size, offset)
    result = convert_image(bytes(data))
    assert (result.width, result.height) == (32, 32)
    struct.pack_into("<II", data, 6 + 16 * (1 - number) + 8, size, offset)
    with pytest.raises(UnreadableImage):
        convert_image(bytes(data))


def test_icon_with_65535_unreadable_images_is_rejected() -> None:
    body = BROKEN_PNG + chunk(b"IDAT", b"no pixels") + chunk(b"IEND")
    count = 65_535
    directory = BytesIO()
    directory.write(struct.pack("<HHH", 0, 1, count))
    data_start = 6 + 16 * count
    for number in range(count):
        directory.write(struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 32, len(body), data_start + number))
    with pytest.raises(UnreadableImage):
        convert_image(directory.getvalue() + body * 2 + bytes(count))
