"""The bounds of an image's size, checked by its headers before a pixel is decoded."""

from core.refusals import media as refusals
from services.media.images.outcome import refused, unreadable

MAX_SIDE_PIXELS = 16_383  # the largest side of a WebP
MAX_PIXELS = 50_000_000
MAX_FRAMES = 1_000
MAX_PLAYS = 65_535  # the most that a WebP can hold
MAX_ANIMATION_PIXELS = 100_000_000
MAX_LOSSLESS_PIXELS = 12_000_000
MAX_LOSSLESS_ANIMATION_PIXELS = 24_000_000  # frames times area


def check_canvas(width: int, height: int, place: str) -> None:
    if width < 1 or height < 1:
        raise unreadable(
            f"The {place} gives a size of {width} by {height}; both sides need pixels."
        )
    size = {"place": place, "width": width, "height": height}
    if max(width, height) > MAX_SIDE_PIXELS:
        raise refused(refusals.IMAGE_SIDE_TOO_LONG, most=MAX_SIDE_PIXELS, **size)
    if (area := width * height) > MAX_PIXELS:
        raise refused(refusals.IMAGE_TOO_MANY_PIXELS, most=MAX_PIXELS, area=area, **size)


def check_frame_count(frames: int, place: str) -> None:
    if frames > MAX_FRAMES:
        raise refused(refusals.IMAGE_TOO_MANY_FRAMES, most=MAX_FRAMES, place=place, frames=frames)


def check_animation(frames: int, area: int, place: str) -> None:
    """`area` is that of the canvas, or of the largest frame if a frame is larger."""
    check_frame_count(frames, place)
    drawn = frames * area
    if frames > 1 and drawn > MAX_ANIMATION_PIXELS:
        size = {"place": place, "frames": frames, "area": area, "drawn": drawn}
        raise refused(refusals.IMAGE_ANIMATION_TOO_LARGE, most=MAX_ANIMATION_PIXELS, **size)
