"""Random animations against a composition of their rules, pixel by pixel, at sampled times.

12 of each kind in short form; `make test-full SIZE=full` makes it 400.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import chain

import pytest
from PIL import Image

from services.attachments.images.conversion import convert_image
from tests.support.images.reading import CLEAR, Pixel, differences
from tests.support.images.samples import (
    GIF_PALETTE,
    GIF_TRANSPARENT,
    GifFrame,
    Rectangle,
    apng,
    encoded,
    gif,
    opened,
    playback,
)
from tests.support.sizes import sized

ANIMATIONS = sized(12, 400)


def blended(below: Pixel, above: Pixel) -> Pixel:
    """The upper over the lower, neither multiplied by its alpha; by the definition."""
    alpha = above[3] / 255
    under = below[3] / 255 * (1 - alpha)
    if not alpha + under:
        return CLEAR
    red, green, blue = (
        round((mine * alpha + theirs * under) / (alpha + under))
        for mine, theirs in zip(above[:3], below[:3], strict=True)
    )
    return (red, green, blue, round(255 * (alpha + under)))


Canvas = dict[tuple[int, int], Pixel]


def composed(size: tuple[int, int], frames: Sequence[Rectangle]) -> Iterator[list[Pixel]]:
    """What is seen during each frame, by the rules of APNG, pixel by pixel."""
    canvas: Canvas = {(x, y): CLEAR for y in range(size[1]) for x in range(size[0])}
    for frame in frames:
        before = dict(canvas)
        left, top, right, bottom = frame.box
        inside = [
            (x, y) for y in range(top, bottom) for x in range(left, right) if (x, y) in canvas
        ]
        colour: Pixel = (*frame.colour[:3], frame.colour[3])  # type: ignore[assignment]
        for at in inside:
            canvas[at] = blended(canvas[at], colour) if frame.blend else colour
        yield list(canvas.values())
        for at in inside:
            canvas[at] = {0: canvas[at], 1: CLEAR, 2: before[at]}[frame.dispose]


def random_frames(
    chance: random.Random, size: tuple[int, int], *, gif_only: bool
) -> list[Rectangle]:
    return [
        _random_frame(chance, size, number, gif_only=gif_only)
        for number in range(chance.randint(2, 9))
    ]


def _random_frame(
    chance: random.Random, size: tuple[int, int], number: int, *, gif_only: bool
) -> Rectangle:
    box = (0, 0, *size)
    if number or gif_only:
        left, top = chance.randrange(size[0] - 1), chance.randrange(size[1] - 1)
        box = (left, top, chance.randint(left + 1, size[0]), chance.randint(top + 1, size[1]))
    alphas = (0, 255) if gif_only else (0, 90, 128, 255)
    colour = (*chance.choice(GIF_PALETTE), chance.choice(alphas))
    hundredths = chance.choice((0, 1, 2, 5, 9, 33, 250, 6000))
    return Rectangle(
        box,
        colour,
        delay=(hundredths, 100),
        # APNG: restoring before the first frame means clearing.
        dispose=chance.choice((0, 1, 2) if number else (0, 1)),
        blend=1 if gif_only else chance.choice((0, 1)),
    )


def as_gif(size: tuple[int, int], frames: Sequence[Rectangle], plays: int) -> bytes:
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


def as_webp(size: tuple[int, int], frames: Sequence[Rectangle], plays: int) -> bytes:
    views = [Image.frombytes("RGBA", size, bytes(chain(*view))) for view in composed(size, frames)]
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


def as_apng(size: tuple[int, int], frames: Sequence[Rectangle], plays: int) -> bytes:
    return apng(size, frames, plays=plays)


CONTAINERS = {"gif": as_gif, "apng": as_apng, "webp": as_webp}


def at_time(shown: Sequence[tuple[bytes, int]], ms: float) -> bytes:
    for pixels, duration in shown:
        if ms < duration:
            return pixels
        ms -= duration
    return shown[-1][0]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("seed", range(ANIMATIONS))
def test_converted_animation_shows_the_right_pixels_at_every_time(
    container: str, seed: int
) -> None:
    chance = random.Random(seed)
    size = (chance.randint(3, 14), chance.randint(3, 10))
    frames = random_frames(chance, size, gif_only=container == "gif")
    plays = chance.choice((0, 1, 2, 100))
    result = convert_image(CONTAINERS[container](size, frames, plays))
    assert_plays(result.data, size, frames, plays)


def assert_plays(
    data: bytes, size: tuple[int, int], frames: Sequence[Rectangle], plays: int
) -> None:
    total = sum(10 * frame.delay[0] for frame in frames)
    views = list(composed(size, frames))
    shown = playback(data)
    if not any(any(differences(view, views[0])) for view in views):
        # What never changes is a still.
        shown = [(shown[0][0], total)]
    assert sum(ms for _, ms in shown) == total
    began = 0
    for frame, expected in zip(frames, views, strict=True):
        ms = 10 * frame.delay[0]
        for sample in (began, began + ms / 2, began + ms - 1) if ms else ():
            levels = at_time(shown, sample)
            found = list(zip(*[iter(levels)] * 4, strict=True))
            # One level of rounding for each blend that the pixel went through.
            assert max(differences(found, expected)) <= len(frames)
        began += ms
    if len(shown) > 1:
        assert opened(data).info["loop"] == plays
