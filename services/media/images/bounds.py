"""The bounds of an image's size, checked by its headers before a pixel is decoded."""

from services.media.images.outcome import UnreadableImage, unreadable

MAX_SIDE_PIXELS = 16_383  # the largest side of a WebP
MAX_PIXELS = 50_000_000
MAX_FRAMES = 1_000
MAX_ANIMATION_PIXELS = 100_000_000
MAX_LOSSLESS_PIXELS = 12_000_000
MAX_LOSSLESS_ANIMATION_PIXELS = 24_000_000  # frames times area


def check_canvas(width: int, height: int, place: str) -> None:
    if width < 1 or height < 1:
        raise unreadable(
            f"The {place} gives a size of {width} by {height}; both sides need pixels."
        )
    if max(width, height) > MAX_SIDE_PIXELS:
        raise UnreadableImage(
            "image.side_too_long",
            f"A side may have at most {MAX_SIDE_PIXELS:,} pixels; the {place} gives {width:,} by "
            f"{height:,}.",
        )
    if width * height > MAX_PIXELS:
        raise UnreadableImage(
            "image.too_many_pixels",
            f"An image may have at most {MAX_PIXELS:,} pixels; the {place} gives "
            f"{width:,} by {height:,} = {width * height:,}.",
        )


def check_frame_count(frames: int, place: str) -> None:
    if frames > MAX_FRAMES:
        raise UnreadableImage(
            "image.too_many_frames",
            f"An animation may have at most {MAX_FRAMES:,} frames; the {place} has "
            f"{frames:,} or more.",
        )


def check_animation(frames: int, area: int, place: str) -> None:
    """`area` is that of the canvas, or of the largest frame if a frame is larger."""
    check_frame_count(frames, place)
    if frames > 1 and frames * area > MAX_ANIMATION_PIXELS:
        raise UnreadableImage(
            "image.animation_too_large",
            f"Frames times area may be at most {MAX_ANIMATION_PIXELS:,} pixels; the {place} has "
            f"{frames:,} frames of {area:,} pixels = {frames * area:,}.",
        )
