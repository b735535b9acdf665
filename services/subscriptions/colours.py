"""Colours of pages: their contrast, and their shades."""

MIN_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
# The grounds of pages on which a colour is hardest to read, as style.css has them: in light and in
# dark windows.
LIGHT_GROUND = "#f6f2ea"
DARK_GROUND = "#212125"
DARK_INK = "#161618"
# The accent of pages that have no other.
USUAL_COLOUR = "#9f2d16"
_WHITE, _BLACK = "#ffffff", "#000000"
_MIXING_STEPS = 50


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def for_dark_windows(colour: str) -> str:
    """The same colour, as much lighter as it takes to be read on a dark ground."""
    for step in range(_MIXING_STEPS + 1):
        found = mixed(colour, _WHITE, step / _MIXING_STEPS)
        if contrast(found, DARK_GROUND) >= MIN_CONTRAST:
            return found
    return _WHITE


def deeper(colour: str) -> str:
    return mixed(colour, _BLACK, 0.2)


def lighter(colour: str) -> str:
    return mixed(colour, _WHITE, 0.2)


def mixed(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def _luminance(colour: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    parts = [each / 255 for each in _channels(colour)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4  # noqa: PLR2004
        for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
