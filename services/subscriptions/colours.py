"""Computes the contrast between colours, and lightens or darkens a colour."""

# The minimum contrast ratio between text and background that WCAG 2.2 requires in section 1.4.3.
MIN_CONTRAST = 4.5
# The page backgrounds in style.css with the lowest contrast to coloured text, for light mode and
# dark mode.
LIGHT_GROUND = "#f6f2ea"
DARK_GROUND = "#212125"
DARK_INK = "#161618"
# The accent colour on the pages of a list whose owner has chosen no colour.
DEFAULT_COLOUR = "#9f2d16"
_WHITE = "#ffffff"
_BLACK = "#000000"
_MIXING_STEPS = 50


def compute_contrast(first_colour: str, second_colour: str) -> float:
    """Return the contrast ratio, from 1 to 21, as defined by WCAG 2.2."""
    darker, lighter = sorted((_compute_luminance(first_colour), _compute_luminance(second_colour)))
    return (lighter + 0.05) / (darker + 0.05)


def lighten_for_dark_mode(colour: str) -> str:
    for step in range(_MIXING_STEPS + 1):
        shade = _mix_colours(colour, _WHITE, step / _MIXING_STEPS)
        if compute_contrast(shade, DARK_GROUND) >= MIN_CONTRAST:
            return shade
    return _WHITE


def darken_colour(colour: str) -> str:
    return _mix_colours(colour, _BLACK, 0.2)


def lighten_colour(colour: str) -> str:
    return _mix_colours(colour, _WHITE, 0.2)


def _mix_colours(colour: str, added_colour: str, share: float) -> str:
    """Use the proportion ``share`` of ``added_colour``, from 0 to 1."""
    pairs = zip(_split_channels(colour), _split_channels(added_colour), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _compute_luminance(colour: str) -> float:
    parts = [each / 255 for each in _split_channels(colour)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4  # noqa: PLR2004
        for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _split_channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue
