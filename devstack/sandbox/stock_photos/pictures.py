"""Drawn pictures: the same name gives the same picture, at any width."""

import hashlib
import io
import random

_SIZES = ((3000, 2000), (2000, 3000), (2400, 2400), (3000, 1688))
_HILLS = 5
_POINTS = 9
_QUALITY = 85
# A picture never changes.
HEADERS = {"Content-Type": "image/jpeg", "Cache-Control": "public, max-age=31536000, immutable"}


def size_of(name: str) -> tuple[int, int]:
    return _chance(name).choice(_SIZES)


def colour_of(name: str) -> tuple[int, int, int]:
    chance = _chance(f"colour of {name}")
    return chance.randint(30, 220), chance.randint(30, 220), chance.randint(30, 220)


def picture(name: str, width: int | None) -> bytes:
    """The picture as JPEG, as wide as asked, but never wider than its full size."""
    full_width, full_height = size_of(name)
    width = min(max(width or full_width, 1), full_width)
    return draw(name, width, max(round(full_height * width / full_width), 1))


def draw(name: str, width: int, height: int) -> bytes:
    """Hills in shades of one colour, as JPEG."""
    # Imported with the first picture: most sandboxes show none, and it takes megabytes.
    from PIL import Image, ImageDraw

    red, green, blue = colour_of(name)
    image = Image.new("RGB", (width, height), (red, green, blue))
    canvas = ImageDraw.Draw(image)
    for number in range(1, _HILLS + 1):
        shade = 1 - number / (_HILLS + 2)
        tone = (int(red * shade), int(green * shade), int(blue * shade))
        chance, base = _chance(f"hill {number} of {name}"), number / (_HILLS + 1)
        ridge = [
            (width * point / (_POINTS - 1), height * (base + chance.uniform(-0.1, 0.1)))
            for point in range(_POINTS)
        ]
        canvas.polygon([(0, height), *ridge, (width, height)], fill=tone)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=_QUALITY)
    return content.getvalue()


def _chance(name: str) -> random.Random:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return random.Random(seed)  # noqa: S311 - it draws hills
