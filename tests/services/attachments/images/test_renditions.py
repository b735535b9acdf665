import pytest
from PIL import ExifTags, Image, ImageChops, ImageStat

from services.attachments.images.conversion import (
    MAX_THUMBNAIL_BYTES,
    MAX_THUMBNAIL_SIZE,
    convert_image,
    create_thumbnail,
)
from services.attachments.images.outcome import Rendition
from tests.support.images.samples import (
    BLUE,
    CLEAR,
    GREEN,
    RED,
    GifFrame,
    Rectangle,
    apng,
    encoded,
    gif,
    open_image,
    picture,
    playback,
    quarters,
    timeline,
    wide_gamut_profile,
)

# These tests are slow, because encoding and decoding the pictures takes seconds.
pytestmark = pytest.mark.slow

MAX_MEAN_DIFFERENCE = 4.0


def create_renditions(data: bytes) -> dict[str, Rendition]:
    thumbnail, *renditions = convert_image(data, with_renditions=True).renditions
    assert thumbnail.name == "thumbnail"
    return {each.name: each for each in renditions}


def make_half_transparent(width: int, height: int) -> Image.Image:
    image = picture(width, height).convert("RGBA")
    image.paste(CLEAR, (0, 0, width // 2, height))
    return image


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (200, ["mail"]),
        (320, ["mail"]),
        (321, ["320", "mail"]),
        (640, ["320", "mail"]),
        (1280, ["320", "640", "mail"]),
        (1281, ["320", "640", "1280", "mail"]),
    ],
)
def test_renditions_are_made_only_for_widths_narrower_than_the_image(
    width: int, expected: list[str]
) -> None:
    renditions = create_renditions(encoded(picture(width, 90), "JPEG"))
    assert list(renditions) == expected
    for name, each in renditions.items():
        assert each.width == (min(width, 1280) if name == "mail" else int(name))


@pytest.mark.parametrize("size", [(1500, 1000), (1500, 3000), (2000, 3), (321, 16_000)])
def test_rendition_keeps_the_aspect_ratio_of_its_image(size: tuple[int, int]) -> None:
    for each in create_renditions(encoded(picture(*size), "PNG")).values():
        assert abs(each.height - size[1] * each.width / size[0]) <= 1
        assert each.height >= 1


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
def test_rendition_looks_like_its_scaled_original(format_name: str) -> None:
    original = picture(1400, 900)
    for each in create_renditions(encoded(original, format_name)).values():
        actual = open_image(each.data).convert("RGB")
        expected = original.resize(actual.size, Image.Resampling.BOX)
        assert (
            max(ImageStat.Stat(ImageChops.difference(actual, expected)).mean) <= MAX_MEAN_DIFFERENCE
        )


def test_mail_rendition_is_jpeg_or_png_for_transparent_images() -> None:
    opaque = picture(700, 500)
    for image, expected in (
        (opaque, "image/jpeg"),
        (opaque.convert("RGBA"), "image/jpeg"),
        (make_half_transparent(700, 500), "image/png"),
    ):
        renditions = create_renditions(encoded(image, "PNG"))
        assert renditions["mail"].mime_type == expected
        assert renditions["320"].mime_type == "image/webp"


def test_renditions_keep_transparency_without_dark_edges() -> None:
    """The transparent half of the image is black, but no dark edge may become visible."""
    image = Image.new("RGBA", (1400, 700), CLEAR)
    image.paste((*RED, 255), (700, 0, 1400, 700))
    for each in create_renditions(encoded(image, "PNG")).values():
        image_with_alpha = open_image(each.data).convert("RGBA")
        assert image_with_alpha.getpixel((5, 5)) == CLEAR
        edge = image_with_alpha.crop((each.width // 2 - 4, 8, each.width // 2 + 5, 9))
        pixels = [edge.getpixel((x, 0)) for x in range(edge.width)]
        levels = [pixel[0] for pixel in pixels if isinstance(pixel, tuple) and pixel[3] > 40]
        assert levels
        assert min(levels) > 240


def test_renditions_are_upright_in_srgb_without_metadata() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.Artist] = "Somebody's name"
    large = quarters().resize((960, 640), Image.Resampling.NEAREST)
    for format_name in ("JPEG", "PNG"):
        data = encoded(
            large,
            format_name,
            exif=exif,
            icc_profile=wide_gamut_profile(),
            comment=b"Somebody's words",
        )
        for each in create_renditions(data).values():
            image = open_image(each.data)
            assert image.height > image.width
            assert not {"exif", "icc_profile", "xmp", "comment"} & set(image.info)
            # The upper right corner of the rotated picture is red. The conversion to sRGB makes the
            # corner green, because the picture's colour profile swaps red and green.
            right = image.convert("RGB").getpixel((image.width - 9, 9))
            assert isinstance(right, tuple)
            assert right[1] > right[0]


@pytest.mark.parametrize("format_name", ["GIF", "PNG", "WEBP"])
def test_animation_renditions_keep_frame_delays_and_mail_rendition_is_a_still(
    format_name: str,
) -> None:
    frames = [Image.new("RGB", (700, 350), colour) for colour in (RED, GREEN, BLUE)]
    data = encoded(
        frames[0],
        format_name,
        save_all=True,
        append_images=frames[1:],
        duration=[100, 250, 70],
        loop=3,
    )
    renditions = create_renditions(data)
    assert list(renditions) == ["320", "640", "mail"]
    full_size = convert_image(data)
    for name in ("320", "640"):
        assert [ms for _, ms in playback(renditions[name].data)] == [100, 250, 70]
        assert (
            open_image(renditions[name].data).info["loop"]
            == open_image(full_size.data).info["loop"]
        )
        for (colour_shown, _), expected in zip(
            timeline(renditions[name].data, (9, 9)), (RED, GREEN, BLUE), strict=True
        ):
            assert max(abs(a - b) for a, b in zip(colour_shown, expected, strict=False)) < 16
    assert getattr(open_image(renditions["mail"].data), "n_frames", 1) == 1
    red = open_image(renditions["mail"].data).convert("RGB").getpixel((9, 9))
    assert isinstance(red, tuple)
    assert red[0] > 240


def test_animation_renditions_scale_partial_frames_to_their_positions() -> None:
    """A frame smaller than the canvas keeps its relative position in the scaled animation."""
    animation = apng(
        (800, 400),
        [
            Rectangle((0, 0, 800, 400), (*RED, 255)),
            Rectangle((400, 200, 800, 400), (*BLUE, 255), dispose=1),
            Rectangle((0, 0, 10, 10), (*GREEN, 255)),
        ],
    )
    (narrow,) = (each for name, each in create_renditions(animation).items() if name == "320")
    colours = [colour for colour, _ in timeline(narrow.data, (310, 150))]
    assert [max(range(3), key=colour.__getitem__) for colour in colours[:2]] == [0, 2]
    assert colours[2][3] == 0


def test_mail_rendition_of_transparent_animation_is_png() -> None:
    data = gif((400, 300), [GifFrame((0, 0, 200, 300), 1), GifFrame((200, 0, 400, 300), 2)])
    renditions = create_renditions(data)
    assert renditions["mail"].mime_type == "image/png"
    image = open_image(renditions["mail"].data).convert("RGBA")
    assert image.getpixel((390, 9)) == CLEAR


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1500, 1000), (320, 213)),
        ((1000, 1500), (160, 240)),
        ((321, 16_000), (5, 240)),
        ((16_000, 3), (320, 1)),
        ((3, 2), (3, 2)),
    ],
)
def test_thumbnail_fits_its_box_and_is_never_larger_than_the_image(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    [thumbnail] = convert_image(encoded(picture(*size), "PNG")).renditions
    assert (thumbnail.width, thumbnail.height) == expected
    assert open_image(thumbnail.data).size == expected


def test_thumbnail_of_noise_has_a_lower_quality_to_stay_within_its_size() -> None:
    noise = Image.effect_noise((640, 480), 200).convert("RGB")
    [thumbnail] = convert_image(encoded(noise, "PNG")).renditions
    assert (thumbnail.width, thumbnail.height) == MAX_THUMBNAIL_SIZE
    assert len(thumbnail.data) <= MAX_THUMBNAIL_BYTES


def test_thumbnail_of_an_animation_is_its_first_frame() -> None:
    frames = [Image.new("RGB", (700, 350), colour) for colour in (RED, BLUE)]
    animation = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)
    thumbnail = create_thumbnail(animation)
    image = open_image(thumbnail.data)
    assert (image.format, getattr(image, "n_frames", 1)) == ("WEBP", 1)
    red = image.convert("RGB").getpixel((9, 9))
    assert isinstance(red, tuple)
    assert red[0] > 240
