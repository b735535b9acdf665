"""Colours of pages: their contrast, and lighter or darker shades of them."""

# WCAG 2.2, 1.4.3.
MIN_CONTRAST = 4.5
# The backgrounds in style.css on which a colour is hardest to read, in light mode and in dark mode.
LIGHT_GROUND = "#f6f2ea"
DARK_GROUND = "#212125"
DARK_INK = "#161618"
# The accent colour of pages that have no other.
USUAL_COLOUR = "#9f2d16"
_WHITE = "#ffffff"
_BLACK = "#000000"
_MIXING_STEPS = 50


def colour_contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def lighten_for_dark_mode(colour: str) -> str:
    """Lighten the colour just enough to be readable on a dark background."""
    for step in range(_MIXING_STEPS + 1):
        shade = _mix_colours(colour, _WHITE, step / _MIXING_STEPS)
        if colour_contrast(shade, DARK_GROUND) >= MIN_CONTRAST:
            return shade
    return _WHITE


def darken_colour(colour: str) -> str:
    return _mix_colours(colour, _BLACK, 0.2)


def lighten_colour(colour: str) -> str:
    return _mix_colours(colour, _WHITE, 0.2)


def _mix_colours(colour: str, other: str, share: float) -> str:
    """Return the colour with this share of the other colour."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _luminance(colour: str) -> float:
    """Return the relative luminance (WCAG 2.2)."""
    parts = [each / 255 for each in _channels(colour)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4  # noqa: PLR2004
        for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue
