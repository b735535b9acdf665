"""Every mode and format against an independent reading of the same file.

Lossless results must agree in every pixel that can be seen. Lossy ones may differ by MEAN levels
on average and by MOST at worst.
"""

import zlib
from collections.abc import Iterator

import pytest
from PIL import ExifTags, Image, ImageOps

from services.attachments.images.conversion import convert_image
from tests.support.images.reading import differences, read
from tests.support.images.samples import chunk, encoded, opened, picture, quarters

# To write and read pictures takes seconds.
pytestmark = pytest.mark.slow
MEAN, MOST = 4.0, 32
SIZE = (24, 18)


def source(mode: str) -> Image.Image:
    """The same scene in any mode, partly transparent where the mode can be."""
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
LOSSY = ("jpeg", "lossy webp")


def writable() -> Iterator[tuple[str, str]]:
    for name, (format_name, options) in FORMATS.items():
        for mode in MODES:
            try:
                encoded(source(mode), format_name, **options)
            except (OSError, ValueError, KeyError):
                continue
            yield name, mode


WRITABLE = list(writable())


@pytest.mark.parametrize(("name", "mode"), WRITABLE)
def test_converted_still_image_matches_its_source_in_every_pixel_mode(name: str, mode: str) -> None:
    format_name, options = FORMATS[name]
    data = encoded(source(mode), format_name, **options)
    assert_agrees(data, lossy=name in LOSSY)


@pytest.mark.parametrize(
    ("name", "key"), [("png", 3), ("gif", 3), ("webp", 3), ("png", bytes(range(0, 256, 16)))]
)
def test_converted_palette_image_keeps_its_transparency(name: str, key: int | bytes) -> None:
    format_name, options = FORMATS[name]
    image = source("P")
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
    found = differences(read(convert_image(data).data), read(data))
    if lossy:
        assert sum(found) / len(found) <= MEAN
        assert max(found) <= MOST
    else:
        assert max(found) == 0


# Where the quarters of "RGBW", read as rows, are to be seen: by the definition in EXIF.
CORNERS = {1: "RGBW", 2: "GRWB", 3: "WBGR", 4: "BWRG", 5: "RBGW", 6: "BRWG", 7: "WGBR", 8: "GWRB"}


def corners(image: Image.Image) -> Iterator[str]:
    right, bottom = image.width - 5, image.height - 5
    for at in ((4, 4), (right, 4), (4, bottom), (right, bottom)):
        levels = image.getpixel(at)
        assert isinstance(levels, tuple)
        bright = [level > 128 for level in levels]
        yield "W" if all(bright) else "RGB"[bright.index(True)]


XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
XMP_ELEMENT = b"<x:xmpmeta><tiff:Orientation>6</tiff:Orientation></x:xmpmeta>"


def xmp_chunk(value: bytes) -> bytes:
    return chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0en\0what it is\0" + value)


def with_chunk(extra: bytes, data: bytes | None = None) -> bytes:
    data = data or encoded(quarters(), "PNG")
    place = data.index(b"IDAT") - 4
    return data[:place] + extra + data[place:]


def assert_turned_as_by_pillow(data: bytes, *, to: int) -> None:
    with opened(data) as image:
        turned = ImageOps.exif_transpose(image)
    result = convert_image(data)
    assert (result.width, result.height) == turned.size
    assert CORNERS[to] == "".join(corners(opened(result.data).convert("RGB")))


def oriented(name: str, *, exif: int = 0, xmp: int = 0) -> bytes:
    """The quarters in a format, with these orientations; none where it is 0."""
    format_name, options = FORMATS[name]
    more: dict[str, object] = {}
    if exif:
        more["exif"] = block = Image.Exif()
        block[ExifTags.Base.Orientation] = exif
    packet = XMP.replace(b"6", str(xmp).encode())
    if xmp and format_name != "PNG":
        more["xmp"] = packet
    data = encoded(quarters(), format_name, **more, **options)
    if xmp and format_name == "PNG":
        data = with_chunk(xmp_chunk(packet), data)
    return data


@pytest.mark.parametrize("name", ["jpeg", "png", "webp", "lossy webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("where", ["exif", "xmp"])
def test_still_image_is_rotated_by_its_exif_or_xmp_orientation(
    name: str, orientation: int, where: str
) -> None:
    assert_turned_as_by_pillow(oriented(name, **{where: orientation}), to=orientation)


@pytest.mark.parametrize("name", ["jpeg", "png", "webp"])
def test_exif_orientation_overrides_xmp_orientation(name: str) -> None:
    assert_turned_as_by_pillow(oriented(name, exif=3, xmp=6), to=3)


def test_png_is_rotated_by_orientation_in_an_xmp_element() -> None:
    assert_turned_as_by_pillow(with_chunk(xmp_chunk(XMP_ELEMENT)), to=6)


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
    assert_agrees(with_chunk(extra), lossy=False)


@pytest.mark.parametrize("exif", [b"", b"II*\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"\xff" * 40])
def test_png_with_broken_exif_is_converted_unchanged(exif: bytes) -> None:
    assert_agrees(with_chunk(chunk(b"eXIf", exif)), lossy=False)
