"""A photo to try an upload with: 12 megapixels, as a phone takes them."""

from pathlib import Path

from PIL import Image, ImageDraw

_SIZE = (4000, 3000)


def make(path: Path) -> None:
    """Draw a landscape as JPEG unless the file is there already; takes about half a second."""
    if path.exists():
        return
    picture = _dusk()
    _draw_landscape(ImageDraw.Draw(picture))
    unfinished = path.with_suffix(".part")
    picture.save(unfinished, "JPEG", quality=88)
    unfinished.replace(path)


def _dusk() -> Image.Image:
    """A sky that is dark blue above and orange at the horizon."""
    fall = Image.linear_gradient("L").resize(_SIZE)
    channels = (
        fall.point([40 + level * 215 // 255 for level in range(256)]),
        fall.point([60 + level * 110 // 255 for level in range(256)]),
        fall.point([130 - level * 50 // 255 for level in range(256)]),
    )
    return Image.merge("RGB", channels)


def _draw_landscape(draw: ImageDraw.ImageDraw) -> None:
    width, height = _SIZE
    draw.ellipse((2600, 1300, 3200, 1900), fill=(255, 236, 180))
    for layer, colour in enumerate([(96, 72, 110), (66, 54, 92), (38, 36, 66), (20, 22, 44)]):
        base, step = 1750 + layer * 330, 500 - layer * 60
        ridge = [
            (x, base - (x * (7 + layer * 3) // step * 97 + layer * 61) % (420 - layer * 50))
            for x in range(0, width + step, step)
        ]
        draw.polygon([(0, height), *ridge, (width, height)], fill=colour)
