"""Tests the conversion of still images in each image format that the product accepts."""

import struct
import zlib

import pytest
from PIL import ExifTags, Image, ImageChops, ImageCms, ImageStat

from services.attachments.images import outcome
from services.attachments.images.conversion import convert_image
from services.attachments.images.outcome import MAX_LOSSLESS_PIXELS, ConvertedImage, Rendition
from tests.support.images import samples
from tests.support.images.samples import (
    BLUE,
    GREEN,
    RED,
    WHITE,
    bitmap,
    encoded,
    icon,
    open_image,
    picture,
)


def srgb_profile() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def load_result(result: ConvertedImage) -> Image.Image:
    image = open_image(result.data)
    image.load()
    return image


def assert_close(image: Image.Image, expected: Image.Image, *, mean: float = 4) -> None:
    difference = ImageChops.difference(image.convert("RGB"), expected.convert("RGB"))
    assert max(ImageStat.Stat(difference).mean) <= mean


def is_lossless(data: bytes) -> bool:
    return b"VP8L" in data[:64] and b"VP8 " not in data[:64]


@pytest.mark.parametrize("name", samples.encode_each_format())
def test_conversion_result_states_actual_type_size_and_frame_count(name: str) -> None:
    result = convert_image(samples.encode_each_format()[name], with_renditions=True)
    assert result.frames == getattr(open_image(result.data), "n_frames", 1)
    images: list[ConvertedImage | Rendition] = [result, *result.renditions]
    for each in images:
        image = open_image(each.data)
        assert each.mime_type == Image.MIME[image.format or ""]
        assert (each.width, each.height) == image.size


@pytest.mark.parametrize("name", ["jpeg", "mpo"])
def test_photo_is_converted_to_lossy_webp_of_its_first_picture(name: str) -> None:
    result = convert_image(samples.encode_each_format()[name])
    assert (result.mime_type, result.frames) == ("image/webp", 1)
    assert not is_lossless(result.data)
    assert_close(load_result(result), picture())


def test_image_metadata_is_removed_on_conversion() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Artist] = "Somebody's name"
    profile = srgb_profile()
    for format_name in ("JPEG", "PNG", "WEBP"):
        data = encoded(picture(), format_name, exif=exif, icc_profile=profile, xmp=b"<x:xmpmeta/>")
        image = load_result(convert_image(data))
        assert not {"exif", "icc_profile", "xmp"} & set(image.info)
    icon = load_result(convert_image(encoded(picture(), "ICO", sizes=[(32, 32)])))
    assert not {"exif", "icc_profile", "xmp"} & set(icon.info)


@pytest.mark.parametrize(
    "damaged_metadata",
    [{"exif": b"Exif\0\0MM\0*\xff\xff\xff\xff"}, {"icc_profile": b"not a profile" * 20}],
)
def test_photo_with_broken_exif_or_profile_is_accepted(damaged_metadata: dict[str, bytes]) -> None:
    assert_close(
        load_result(convert_image(encoded(picture(), "JPEG", **damaged_metadata))), picture()
    )


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
def test_image_colours_are_converted_from_the_embedded_profile(format_name: str) -> None:
    red = Image.new("RGB", (32, 32), RED)
    options = {"lossless": True} if format_name == "WEBP" else {}
    data = encoded(red, format_name, icc_profile=samples.wide_gamut_profile(), **options)
    image = load_result(convert_image(data)).convert("RGB")
    assert_close(image, Image.new("RGB", (32, 32), GREEN), mean=8)


def test_image_with_srgb_profile_keeps_every_pixel() -> None:
    data = encoded(picture(), "PNG", icc_profile=srgb_profile())
    assert load_result(convert_image(data)).convert("RGB").tobytes() == picture().tobytes()


def test_lossless_conversion_keeps_colours_of_fully_transparent_pixels() -> None:
    source = picture().convert("RGBA")
    source.putalpha(0)
    assert load_result(convert_image(encoded(source, "PNG"))).tobytes() == source.tobytes()


def test_transparent_16_bit_grey_is_matched_at_full_depth() -> None:
    rows = b"\0" + struct.pack(">3H", 0x4001, 0x4002, 0x5001)
    key = samples.chunk(b"tRNS", struct.pack(">H", 0x4001))
    image = load_result(convert_image(samples.png(3, 1, rows, depth=16, colour=0, extra=key)))
    assert image.convert("RGBA").getchannel("A").tobytes() == bytes([0, 255, 255])


def test_png_with_16_bit_colour_and_alpha_keeps_both_in_8_bits() -> None:
    rows = b"\0" + struct.pack(">8H", 0xFFFF, 0, 0x8000, 0x4000, 0, 0xFFFF, 0, 0xFFFF)
    image = load_result(convert_image(samples.png(2, 1, rows, depth=16, colour=6)))
    assert image.convert("RGBA").tobytes() == bytes([255, 0, 0x80, 0x40, 0, 255, 0, 255])


def test_transparent_colour_of_2_bit_png_is_applied() -> None:
    key = samples.chunk(b"tRNS", struct.pack(">H", 1))
    image = load_result(convert_image(samples.png(4, 1, b"\0\x1b", depth=2, colour=0, extra=key)))
    assert image.convert("RGBA").getchannel("A").tobytes() == bytes([255, 0, 255, 255])


@pytest.mark.parametrize(("pixels", "lossless"), [(12_000_000, True), (12_000_001, False)])
def test_png_is_converted_losslessly_up_to_12_megapixels(
    pixels: int, lossless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_LOSSLESS_PIXELS == 12_000_000
    monkeypatch.setattr(outcome, "MAX_LOSSLESS_PIXELS", 96 * 64 - (pixels - 12_000_000))
    assert is_lossless(convert_image(encoded(picture(), "PNG")).data) is lossless


def test_oversized_compressed_text_in_png_does_not_fail_its_conversion() -> None:
    bomb = samples.chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(9_000_000)))
    rows = samples.rgba_rows(8, 8, (*RED, 255))
    result = convert_image(samples.png(8, 8, rows, extra=bomb))
    assert load_result(result).convert("RGB").getpixel((0, 0)) == RED


@pytest.mark.parametrize("lossless", [True, False])
def test_webp_is_converted_losslessly_only_if_its_source_is_lossless(lossless: bool) -> None:
    result = convert_image(encoded(picture(), "WEBP", lossless=lossless))
    assert is_lossless(result.data) is lossless
    assert_close(load_result(result), picture())


def test_icon_is_converted_to_png_of_its_largest_image() -> None:
    result = convert_image(encoded(picture(64, 64), "ICO", sizes=[(16, 16), (64, 64), (32, 32)]))
    assert result.mime_type == "image/png"
    assert (result.width, result.height) == (64, 64)
    assert_close(load_result(result), picture(64, 64))


def test_icon_image_with_greatest_colour_depth_wins_among_equal_sizes() -> None:
    shallow = bitmap((0, 0, 255), 24)
    deep = bitmap((255, 0, 0, 255), 32)
    for images in (((24, shallow), (32, deep)), ((32, deep), (24, shallow))):
        assert load_result(convert_image(icon(*images))).convert("RGB").getpixel((5, 5)) == BLUE


def test_icon_mask_makes_its_pixels_transparent() -> None:
    image = load_result(convert_image(icon((24, bitmap((0, 0, 255), 24, masked_rows=8))))).convert(
        "RGBA"
    )
    # Bitmaps are stored from the bottom up.
    assert (image.getpixel((3, 31)), image.getpixel((3, 0))) == ((*RED, 0), (*RED, 255))


def test_icon_with_all_zero_alpha_is_shown_opaque() -> None:
    image = load_result(convert_image(icon((32, bitmap((0, 0, 255, 0), 32)))))
    assert image.convert("RGBA").getpixel((3, 3)) == (*RED, 255)


def test_icon_image_size_is_read_from_the_image_rather_than_the_icon_directory() -> None:
    large = encoded(Image.new("RGB", (300, 300), WHITE), "PNG")
    assert convert_image(icon((32, bitmap((0, 0, 255), 24)), (32, large))).width == 300


def test_blurhash_differs_between_pictures_and_treats_transparency_as_white() -> None:
    clear = convert_image(encoded(Image.new("RGBA", (50, 50), (0, 0, 0, 0)), "PNG")).blurhash
    white = convert_image(encoded(Image.new("RGB", (50, 50), WHITE), "PNG")).blurhash
    assert clear == white
    assert white != convert_image(encoded(picture(), "PNG")).blurhash
    assert len(white) == 28
