"""Generates images for tests, such as images that compress like photos."""

import io
from functools import lru_cache

from PIL import Image


@lru_cache
def photo(width: int = 640, height: int = 480, *, quality: int = 85) -> bytes:
    """Return a JPEG image with gradients and some noise, so that it compresses like a photo."""
    picture = Image.merge(
        "RGB",
        [
            Image.linear_gradient("L").resize((width, height)),
            Image.radial_gradient("L").resize((width, height)),
            Image.effect_noise((width, height), 24),
        ],
    )
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


@lru_cache
def noise(size: tuple[int, int] = (300, 200), *, quality: int = 5) -> bytes:
    """Return a noisy JPEG image of low quality.

    When Pressroom converts this image, the file becomes larger, because Pressroom uses a higher
    quality than this image has.
    """
    buffer = io.BytesIO()
    Image.effect_noise(size, 90).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


@lru_cache
def encoded(file_format: str, mode: str = "RGB", size: tuple[int, int] = (64, 48)) -> bytes:
    picture = Image.linear_gradient("L").resize(size).convert(mode)
    buffer = io.BytesIO()
    picture.save(buffer, file_format)
    return buffer.getvalue()
