"""Tests that the converter keeps the pixels of images in all image modes and formats.

The tests decode the source image and the converted image without the converter's code. After
lossless compression, all visible pixels must be equal. After lossy compression, colour levels may
differ by MAX_MEAN_DIFFERENCE on average, and by MAX_DIFFERENCE at most.
"""

import zlib
from collections.abc import Iterator

import pytest
from PIL import ExifTags, Image, ImageOps

from services.attachments.images.conversion import convert_image
from tests.support.images.reading import Pixel, level_differences
from tests.support.images.samples import chunk, encoded, open_image, picture, quarters

# These tests are slow, because encoding and decoding the pictures takes seconds.
pytestmark = pytest.mark.slow
MAX_MEAN_DIFFERENCE = 4.0
MAX_DIFFERENCE = 32
SIZE = (24, 18)


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


def make_scene(mode: str) -> Image.Image:
    """Return the test picture in one of Pillow's image modes, such as ``RGB``.

    In a mode with an alpha channel, the picture is partly transparent.
    """
    scene = picture(*SIZE)
    if mode in ("LA", "RGBA"):
        scene = scene.convert(mode)
        scene.putalpha(Image.radial_gradient("L").resize(SIZE))
        return scene
    if mode == "P":
        return scene.quantize(16)
    if mode in ("I;16", "I"):
        return scene.convert("L").convert("I").point(lambda level: level * 257).convert(mode)
    return scene.convert(mode)


FORMATS: dict[str, tuple[str, dict[str, object]]] = {
    "png": ("PNG", {}),
    "jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    "gif": ("GIF", {}),
    "webp": ("WEBP", {"lossless": True, "exact": True}),
    "lossy webp": ("WEBP", {"quality": 90}),
    "ico": ("ICO", {"sizes": [(16, 16)]}),
    "bitmap ico": ("ICO", {"sizes": [(16, 16)], "bitmap_format": "bmp"}),
}
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F", "HSV", "LAB")
LOSSY_FORMATS = ("jpeg", "lossy webp")


def find_writable_modes() -> Iterator[tuple[str, str]]:
    for name, (format_name, options) in FORMATS.items():
        for mode in MODES:
            try:
                encoded(make_scene(mode), format_name, **options)
            except (OSError, ValueError, KeyError):
                continue
            yield name, mode


WRITABLE_MODES = list(find_writable_modes())


@pytest.mark.parametrize(("name", "mode"), WRITABLE_MODES)
def test_converted_still_image_matches_its_source_in_every_pixel_mode(name: str, mode: str) -> None:
    format_name, options = FORMATS[name]
    data = encoded(make_scene(mode), format_name, **options)
    assert_agrees(data, lossy=name in LOSSY_FORMATS)


@pytest.mark.parametrize(
    ("name", "key"), [("png", 3), ("gif", 3), ("webp", 3), ("png", bytes(range(0, 256, 16)))]
)
def test_converted_palette_image_keeps_its_transparency(name: str, key: int | bytes) -> None:
    format_name, options = FORMATS[name]
    image = make_scene("P")
    image.info["transparency"] = key
    assert_agrees(encoded(image, format_name, **options), lossy=False)


@pytest.mark.parametrize(
    ("mode", "key"), [("1", 255), ("L", 90), ("RGB", (255, 0, 0)), ("I;16", 0)]
)
def test_converted_png_keeps_its_transparent_colour(mode: str, key: int | tuple[int, ...]) -> None:
    image = quarters().convert("L").convert("I;16") if mode == "I;16" else quarters().convert(mode)
    data = encoded(image, "PNG", transparency=1 if mode == "1" else key)
    assert_agrees(data, lossy=False)


def assert_agrees(data: bytes, *, lossy: bool) -> None:
    pixel_differences = level_differences(read_pixels(convert_image(data).data), read_pixels(data))
    if lossy:
        assert sum(pixel_differences) / len(pixel_differences) <= MAX_MEAN_DIFFERENCE
        assert max(pixel_differences) <= MAX_DIFFERENCE
    else:
        assert max(pixel_differences) == 0


# Maps each EXIF orientation to the colours of the corners that a viewer sees: top left, top right,
# bottom left, bottom right. The stored picture has the corners "RGBW": red, green, blue and white.
CORNERS = {1: "RGBW", 2: "GRWB", 3: "WBGR", 4: "BWRG", 5: "RBGW", 6: "BRWG", 7: "WGBR", 8: "GWRB"}


def read_corners(image: Image.Image) -> Iterator[str]:
    right = image.width - 5
    bottom = image.height - 5
    for position in ((4, 4), (right, 4), (4, bottom), (right, bottom)):
        levels = image.getpixel(position)
        assert isinstance(levels, tuple)
        bright = [level > 128 for level in levels]
        yield "W" if all(bright) else "RGB"[bright.index(True)]


XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
XMP_ELEMENT = b"<x:xmpmeta><tiff:Orientation>6</tiff:Orientation></x:xmpmeta>"


def xmp_chunk(value: bytes) -> bytes:
    return chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0en\0what it is\0" + value)


def insert_chunk(extra: bytes, data: bytes | None = None) -> bytes:
    data = data or encoded(quarters(), "PNG")
    position = data.index(b"IDAT") - 4
    return data[:position] + extra + data[position:]


def assert_rotated_like_pillow(data: bytes, *, expected_orientation: int) -> None:
    with open_image(data) as image:
        rotated = ImageOps.exif_transpose(image)
    result = convert_image(data)
    assert (result.width, result.height) == rotated.size
    assert CORNERS[expected_orientation] == "".join(
        read_corners(open_image(result.data).convert("RGB"))
    )


def encode_with_orientation(name: str, *, exif: int = 0, xmp: int = 0) -> bytes:
    """Encode the picture that `quarters` returns, with an orientation in its EXIF or XMP metadata.

    Args:
        name: the name of a format in FORMATS.
        exif: the orientation in the EXIF metadata, or 0 for a picture without EXIF metadata.
        xmp: the orientation in the XMP metadata, or 0 for a picture without XMP metadata.
    """
    format_name, options = FORMATS[name]
    metadata: dict[str, object] = {}
    if exif:
        metadata["exif"] = block = Image.Exif()
        block[ExifTags.Base.Orientation] = exif
    packet = XMP.replace(b"6", str(xmp).encode())
    if xmp and format_name != "PNG":
        metadata["xmp"] = packet
    data = encoded(quarters(), format_name, **metadata, **options)
    if xmp and format_name == "PNG":
        data = insert_chunk(xmp_chunk(packet), data)
    return data


@pytest.mark.parametrize("name", ["jpeg", "png", "webp", "lossy webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("metadata_kind", ["exif", "xmp"])
def test_still_image_is_rotated_by_its_exif_or_xmp_orientation(
    name: str, orientation: int, metadata_kind: str
) -> None:
    assert_rotated_like_pillow(
        encode_with_orientation(name, **{metadata_kind: orientation}),
        expected_orientation=orientation,
    )


@pytest.mark.parametrize("name", ["jpeg", "png", "webp"])
def test_exif_orientation_overrides_xmp_orientation(name: str) -> None:
    assert_rotated_like_pillow(encode_with_orientation(name, exif=3, xmp=6), expected_orientation=3)


def test_png_is_rotated_by_orientation_in_an_xmp_element() -> None:
    assert_rotated_like_pillow(insert_chunk(xmp_chunk(XMP_ELEMENT)), expected_orientation=6)


@pytest.mark.parametrize(
    "extra",
    [
        xmp_chunk(b""),
        xmp_chunk(b"tiff:Orientation"),
        xmp_chunk(b'tiff:Orientation="0"'),
        xmp_chunk(b'tiff:Orientation="9"'),
        chunk(b"iTXt", b""),
        chunk(b"iTXt", b"XML:com.adobe.xmp"),
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0en"),
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(XMP)),
        chunk(b"tEXt", b"Raw profile type exif\0\nexif\n4\nno hex at all"),
    ],
)  # fmt: skip
def test_png_with_malformed_orientation_metadata_is_not_rotated(extra: bytes) -> None:
    assert_agrees(insert_chunk(extra), lossy=False)


@pytest.mark.parametrize("exif", [b"", b"II*\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"\xff" * 40])
def test_png_with_broken_exif_is_converted_unchanged(exif: bytes) -> None:
    assert_agrees(insert_chunk(chunk(b"eXIf", exif)), lossy=False)
