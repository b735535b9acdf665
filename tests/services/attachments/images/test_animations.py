import pytest
from PIL import Image

from services.attachments.images.conversion import convert_image
from tests.support.images.samples import (
    BLUE,
    GREEN,
    RED,
    WHITE,
    GifFrame,
    Rectangle,
    apng,
    encode_animation,
    encoded,
    gif,
    open_image,
    playback,
    timeline,
)

OPAQUE_RED = (*RED, 255)
OPAQUE_GREEN = (*GREEN, 255)
FULL_CANVAS = (0, 0, 20, 10)


def test_equal_consecutive_animation_frames_are_merged_with_summed_delays() -> None:
    frames = [
        GifFrame(FULL_CANVAS, index, hundredths=each)
        for index, each in ((0, 7), (0, 5), (1, 9), (1, 30))
    ]
    result = convert_image(gif((20, 10), frames))
    assert timeline(result.data) == [(OPAQUE_RED, 120), (OPAQUE_GREEN, 390)]
    assert result.frames == open_image(result.data).n_frames  # type: ignore[attr-defined]


def test_animation_delays_of_fractional_milliseconds_do_not_drift() -> None:
    frames = [
        Rectangle(FULL_CANVAS, (*((RED, GREEN)[n % 2]), 255), delay=(1, 60)) for n in range(60)
    ]
    delays = [ms for _, ms in timeline(convert_image(apng((20, 10), frames)).data)]
    assert sum(delays) == 1000
    assert set(delays) == {16, 17}


# An APNG file stores the delay of each frame as a fraction of a second. If the denominator of a
# frame's delay is 0, the numerator is the delay in hundredths of a second. The converter doesn't
# shorten even a frame delay of 20,000 seconds.
@pytest.mark.parametrize(("delay", "ms"), [((7, 0), 70), ((20_000, 1), 20_000_000)])
def test_animation_frame_keeps_its_delay(delay: tuple[int, int], ms: int) -> None:
    frames = [Rectangle(FULL_CANVAS, colour, delay=delay) for colour in (OPAQUE_RED, OPAQUE_GREEN)]
    assert [each for _, each in timeline(convert_image(apng((20, 10), frames)).data)] == [ms, ms]


def test_gif_frame_beyond_the_canvas_is_cropped() -> None:
    frames = [GifFrame(FULL_CANVAS, 0), GifFrame((15, 5, 40, 30), 1)]
    result = convert_image(gif((20, 10), frames))
    assert (result.width, result.height) == (20, 10)
    assert timeline(result.data, at=(19, 9))[-1][0] == OPAQUE_GREEN


def test_apng_with_one_frame_becomes_a_still_image_of_that_frame() -> None:
    result = convert_image(
        apng((20, 10), [Rectangle(FULL_CANVAS, OPAQUE_RED)], stand_in=(*WHITE, 255))
    )
    assert result.frames == 1
    assert open_image(result.data).convert("RGBA").getpixel((0, 0)) == OPAQUE_RED


@pytest.mark.parametrize("lossless", [True, False])
def test_animated_webp_keeps_frame_delays_and_losslessness(lossless: bool) -> None:
    data = encode_animation("WEBP", (RED, GREEN, BLUE), (30, 500, 70), lossless=lossless, loop=3)
    result = convert_image(data)
    assert [ms for _, ms in playback(result.data)] == [30, 500, 70]
    assert (b"VP8L" in result.data) is lossless


def test_long_lossless_animation_is_converted_to_lossy_with_the_same_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encode_animation("GIF", (RED, GREEN, BLUE), (30, 500, 70))
    assert b"VP8 " not in convert_image(data).data
    monkeypatch.setattr(
        "services.attachments.images.outcome.MAX_LOSSLESS_ANIMATION_PIXELS", 3 * 40 * 30 - 1
    )
    result = convert_image(data)
    assert b"VP8 " in result.data
    assert [ms for _, ms in playback(result.data)] == [30, 500, 70]


def test_blurhash_of_animation_is_computed_from_its_first_frame() -> None:
    still = convert_image(encoded(Image.new("RGB", (40, 30), RED), "PNG"))
    assert convert_image(encode_animation("GIF", (RED, GREEN), (50, 50))).blurhash == still.blurhash
