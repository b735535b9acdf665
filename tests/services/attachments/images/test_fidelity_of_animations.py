"""Tests that converted random animations show the right pixels throughout each frame.

The tests convert 12 animations of each file format, or 400 in `make test-full SIZE=full`.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import chain

import pytest
from PIL import Image

from services.attachments.images.conversion import convert_image
from tests.support.images.reading import CLEAR, Pixel, level_differences
from tests.support.images.samples import (
    GIF_PALETTE,
    GIF_TRANSPARENT,
    GifFrame,
    Rectangle,
    apng,
    encoded,
    gif,
    open_image,
    playback,
)
from tests.support.sizes import sized

ANIMATION_COUNT = sized(12, 400)


def blend(below: Pixel, above: Pixel) -> Pixel:
    """Return the pixel that results from drawing the pixel ``above`` over the pixel ``below``.

    The colours of the arguments and of the result aren't premultiplied by alpha.
    """
    alpha = above[3] / 255
    below_alpha = below[3] / 255 * (1 - alpha)
    if not alpha + below_alpha:
        return CLEAR
    red, green, blue = (
        round((above_level * alpha + below_level * below_alpha) / (alpha + below_alpha))
        for above_level, below_level in zip(above[:3], below[:3], strict=True)
    )
    return (red, green, blue, round(255 * (alpha + below_alpha)))


Canvas = dict[tuple[int, int], Pixel]


def compose_frames(size: tuple[int, int], frames: Sequence[Rectangle]) -> Iterator[list[Pixel]]:
    """Compose the frames by the rules of APNG, and yield the visible pixels during each frame."""
    canvas: Canvas = {(x, y): CLEAR for y in range(size[1]) for x in range(size[0])}
    for frame in frames:
        before = dict(canvas)
        left, top, right, bottom = frame.box
        inside = [
            (x, y) for y in range(top, bottom) for x in range(left, right) if (x, y) in canvas
        ]
        colour: Pixel = (*frame.colour[:3], frame.colour[3])  # type: ignore[assignment]
        for position in inside:
            canvas[position] = blend(canvas[position], colour) if frame.blend else colour
        yield list(canvas.values())
        for position in inside:
            canvas[position] = {0: canvas[position], 1: CLEAR, 2: before[position]}[frame.dispose]


def random_frames(
    random_source: random.Random, size: tuple[int, int], *, gif_only: bool
) -> list[Rectangle]:
    return [
        _random_frame(random_source, size, number, gif_only=gif_only)
        for number in range(random_source.randint(2, 9))
    ]


def _random_frame(
    random_source: random.Random, size: tuple[int, int], number: int, *, gif_only: bool
) -> Rectangle:
    box = (0, 0, *size)
    if number or gif_only:
        left = random_source.randrange(size[0] - 1)
        top = random_source.randrange(size[1] - 1)
        box = (
            left,
            top,
            random_source.randint(left + 1, size[0]),
            random_source.randint(top + 1, size[1]),
        )
    alphas = (0, 255) if gif_only else (0, 90, 128, 255)
    colour = (*random_source.choice(GIF_PALETTE), random_source.choice(alphas))
    hundredths = random_source.choice((0, 1, 2, 5, 9, 33, 250, 6000))
    return Rectangle(
        box,
        colour,
        delay=(hundredths, 100),
        # In APNG, the value 2 (restore the previous image) means 1 (clear) for the first frame.
        dispose=random_source.choice((0, 1, 2) if number else (0, 1)),
        blend=1 if gif_only else random_source.choice((0, 1)),
    )


def build_gif(size: tuple[int, int], frames: Sequence[Rectangle], plays: int) -> bytes:
    return gif(
        size,
        [
            GifFrame(
                frame.box,
                GIF_PALETTE.index(frame.colour[:3]) if frame.colour[3] else GIF_TRANSPARENT,
                hundredths=frame.delay[0],
                dispose=frame.dispose + 1,
            )
            for frame in frames
        ],
        loop={0: 0, 1: None}.get(plays, plays - 1),
    )


def build_webp(size: tuple[int, int], frames: Sequence[Rectangle], plays: int) -> bytes:
    views = [
        Image.frombytes("RGBA", size, bytes(chain(*view))) for view in compose_frames(size, frames)
    ]
    ms = [10 * frame.delay[0] for frame in frames]
    return encoded(
        views[0],
        "WEBP",
        save_all=True,
        append_images=views[1:],
        duration=ms,
        loop=plays,
        lossless=True,
        background=CLEAR,
    )


def build_apng(size: tuple[int, int], frames: Sequence[Rectangle], plays: int) -> bytes:
    return apng(size, frames, plays=plays)


CONTAINERS = {"gif": build_gif, "apng": build_apng, "webp": build_webp}


def find_frame_at(played_frames: Sequence[tuple[bytes, int]], ms: float) -> bytes:
    for pixels, duration in played_frames:
        if ms < duration:
            return pixels
        ms -= duration
    return played_frames[-1][0]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("seed", range(ANIMATION_COUNT))
def test_converted_animation_shows_the_right_pixels_at_every_time(
    container: str, seed: int
) -> None:
    random_source = random.Random(seed)
    size = (random_source.randint(3, 14), random_source.randint(3, 10))
    frames = random_frames(random_source, size, gif_only=container == "gif")
    plays = random_source.choice((0, 1, 2, 100))
    result = convert_image(CONTAINERS[container](size, frames, plays))
    assert_plays(result.data, size, frames, plays)


def assert_plays(
    data: bytes, size: tuple[int, int], frames: Sequence[Rectangle], plays: int
) -> None:
    total = sum(10 * frame.delay[0] for frame in frames)
    views = list(compose_frames(size, frames))
    played_frames = playback(data)
    if not any(any(level_differences(view, views[0])) for view in views):
        # An animation that never changes becomes a still image.
        played_frames = [(played_frames[0][0], total)]
    assert sum(ms for _, ms in played_frames) == total
    start_ms = 0
    for frame, expected in zip(frames, views, strict=True):
        ms = 10 * frame.delay[0]
        for sample in (start_ms, start_ms + ms / 2, start_ms + ms - 1) if ms else ():
            levels = find_frame_at(played_frames, sample)
            actual = list(zip(*[iter(levels)] * 4, strict=True))
            # Rounding can change a colour level by 1 for each frame that is blended.
            assert max(level_differences(actual, expected)) <= len(frames)
        start_ms += ms
    if len(played_frames) > 1:
        assert open_image(data).info["loop"] == plays
