from collections.abc import Sequence

import pytest
from PIL import Image

from services.attachments.images.conversion import convert
from tests.services.attachments.images.samples import (
    BLUE,
    CLEAR,
    GREEN,
    RED,
    WHITE,
    GifFrame,
    Rectangle,
    animated,
    apng,
    encoded,
    gif,
    opened,
    picture,
    playback,
    timeline,
)

OPAQUE_RED, OPAQUE_GREEN, OPAQUE_BLUE = (*RED, 255), (*GREEN, 255), (*BLUE, 255)
FULL = (0, 0, 20, 10)


@pytest.mark.parametrize("format_name", ["PNG", "GIF"])
def test_time_line_and_every_pixel_survive(format_name: str) -> None:
    frames = [picture().rotate(angle).quantize(32).convert("RGB") for angle in range(0, 180, 20)]
    ms = [100, 20, 30, 250, 70, 10, 1000, 40, 90]
    data = encoded(
        frames[0], format_name, save_all=True, append_images=frames[1:], duration=ms, loop=0
    )
    expected = [
        (frame.convert("RGBA").tobytes(), each) for frame, each in zip(frames, ms, strict=True)
    ]
    result = convert(data)
    assert playback(result.data) == expected
    assert result.frames == 9


def test_equal_neighbours_are_shown_for_their_time_together() -> None:
    frames = [
        GifFrame(FULL, index, hundredths=each) for index, each in ((0, 7), (0, 5), (1, 9), (1, 30))
    ]
    result = convert(gif((20, 10), frames))
    assert timeline(result.data) == [(OPAQUE_RED, 120), (OPAQUE_GREEN, 390)]
    assert result.frames == opened(result.data).n_frames  # type: ignore[attr-defined]


def test_delays_of_a_fraction_of_a_millisecond_do_not_drift() -> None:
    frames = [Rectangle(FULL, (*((RED, GREEN)[n % 2]), 255), delay=(1, 60)) for n in range(60)]
    shown = [ms for _, ms in timeline(convert(apng((20, 10), frames)).data)]
    assert sum(shown) == 1000
    assert set(shown) == {16, 17}


def test_delay_without_a_unit_counts_hundredths() -> None:
    frames = [Rectangle(FULL, colour, delay=(7, 0)) for colour in (OPAQUE_RED, OPAQUE_GREEN)]
    assert [ms for _, ms in timeline(convert(apng((20, 10), frames)).data)] == [70, 70]


@pytest.mark.parametrize(("loop", "plays"), [(None, 1), (0, 0), (1, 2), (7, 8), (65535, 65535)])
def test_gif_plays_as_often_as_before(loop: int | None, plays: int) -> None:
    data = gif((20, 10), [GifFrame(FULL, 0), GifFrame(FULL, 1)], loop=loop)
    assert opened(convert(data).data).info["loop"] == plays


@pytest.mark.parametrize("plays", [0, 1, 5])
def test_apng_and_webp_play_as_often_as_before(plays: int) -> None:
    moving = apng(
        (20, 10), [Rectangle(FULL, OPAQUE_RED), Rectangle(FULL, OPAQUE_BLUE)], plays=plays
    )
    assert opened(convert(moving).data).info["loop"] == plays
    webp = animated("WEBP", (RED, BLUE), (50, 60), loop=plays)
    assert opened(convert(webp).data).info["loop"] == plays


@pytest.mark.parametrize(
    ("dispose", "left_over"), [(0, OPAQUE_GREEN), (1, OPAQUE_GREEN), (2, CLEAR), (3, OPAQUE_RED)]
)
def test_gif_frame_leaves_behind_what_its_disposal_says(
    dispose: int, left_over: Sequence[int]
) -> None:
    frames = [
        GifFrame(FULL, 0),
        GifFrame((0, 0, 5, 5), 1, dispose=dispose),
        GifFrame((10, 5, 15, 10), 2),
    ]
    data = convert(gif((20, 10), frames)).data
    assert [colour for colour, _ in timeline(data)] == [OPAQUE_RED, OPAQUE_GREEN, left_over]
    assert timeline(data, at=(12, 7))[-1][0] == OPAQUE_BLUE


def test_gif_outside_its_frames_is_transparent() -> None:
    data = convert(gif((20, 10), [GifFrame((5, 5, 10, 10), 0), GifFrame((5, 5, 10, 10), 1)])).data
    assert {colour for colour, _ in timeline(data)} == {CLEAR}


def test_gif_with_opaque_frames_on_a_larger_canvas_is_transparent_beside_them() -> None:
    data = convert(gif((20, 10), [GifFrame((4, 4, 10, 10), 0), GifFrame((4, 4, 10, 10), 1)])).data
    assert {colour for colour, _ in timeline(data)} == {CLEAR}
    assert [colour for colour, _ in timeline(data, at=(4, 4))] == [OPAQUE_RED, OPAQUE_GREEN]


def test_gif_frame_that_reaches_over_the_edge_is_cut_off() -> None:
    frames = [GifFrame(FULL, 0), GifFrame((15, 5, 40, 30), 1)]
    result = convert(gif((20, 10), frames))
    assert (result.width, result.height) == (20, 10)
    assert timeline(result.data, at=(19, 9))[-1][0] == OPAQUE_GREEN


@pytest.mark.parametrize(("dispose", "left_over"), [(0, OPAQUE_GREEN), (1, CLEAR), (2, OPAQUE_RED)])
def test_apng_frame_leaves_behind_what_its_disposal_says(
    dispose: int, left_over: Sequence[int]
) -> None:
    frames = [
        Rectangle(FULL, OPAQUE_RED),
        Rectangle((0, 0, 5, 5), OPAQUE_GREEN, dispose=dispose),
        Rectangle((10, 5, 15, 10), OPAQUE_BLUE),
    ]
    data = convert(apng((20, 10), frames)).data
    assert [colour for colour, _ in timeline(data)] == [OPAQUE_RED, OPAQUE_GREEN, left_over]


def test_apng_blends_over_or_replaces() -> None:
    half_blue = (*BLUE, 128)
    for blend, expected in ((0, half_blue), (1, (127, 0, 128, 255))):
        frames = [Rectangle(FULL, OPAQUE_RED), Rectangle(FULL, half_blue, blend=blend)]
        assert timeline(convert(apng((20, 10), frames)).data)[-1][0] == expected


def test_default_image_that_is_not_a_frame_is_not_shown() -> None:
    frames = [Rectangle(FULL, OPAQUE_RED), Rectangle(FULL, OPAQUE_GREEN)]
    data = convert(apng((20, 10), frames, stand_in=(*WHITE, 255))).data
    assert timeline(data) == [(OPAQUE_RED, 100), (OPAQUE_GREEN, 100)]


def test_apng_of_one_frame_shows_that_frame_as_a_still() -> None:
    result = convert(apng((20, 10), [Rectangle(FULL, OPAQUE_RED)], stand_in=(*WHITE, 255)))
    assert result.frames == 1
    assert opened(result.data).convert("RGBA").getpixel((0, 0)) == OPAQUE_RED


@pytest.mark.parametrize("lossless", [True, False])
def test_animated_webp_keeps_its_time_line(lossless: bool) -> None:
    data = animated("WEBP", (RED, GREEN, BLUE), (30, 500, 70), lossless=lossless, loop=3)
    result = convert(data)
    assert [ms for _, ms in playback(result.data)] == [30, 500, 70]
    assert (b"VP8L" in result.data) is lossless


def test_long_animation_gives_up_losslessness_for_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = animated("GIF", (RED, GREEN, BLUE), (30, 500, 70))
    assert b"VP8 " not in convert(data).data
    monkeypatch.setattr(
        "services.attachments.images.outcome.MAX_LOSSLESS_ANIMATION_PIXELS", 3 * 40 * 30 - 1
    )
    result = convert(data)
    assert b"VP8 " in result.data
    assert [ms for _, ms in playback(result.data)] == [30, 500, 70]


def test_frame_of_many_hours_keeps_its_time() -> None:
    frames = [Rectangle(FULL, colour, delay=(20_000, 1)) for colour in (OPAQUE_RED, OPAQUE_GREEN)]
    assert [ms for _, ms in timeline(convert(apng((20, 10), frames)).data)] == [
        20_000_000,
        20_000_000,
    ]


def test_frame_without_delay_has_none_afterwards() -> None:
    frames = [GifFrame(FULL, 0, hundredths=0), GifFrame(FULL, 1, hundredths=3)]
    assert sum(ms for _, ms in timeline(convert(gif((20, 10), frames)).data)) == 30


def test_blurhash_is_of_the_first_frame() -> None:
    still = convert(encoded(Image.new("RGB", (40, 30), RED), "PNG"))
    assert convert(animated("GIF", (RED, GREEN), (50, 50))).blurhash == still.blurhash
