"""Recognises number formats that add leading zeros, such as ``00000`` for postal codes.

People read these zeros as a part of the value, unlike separators of thousands, currencies and
percent signs. ECMA-376, part 1, 18.8.31, defines number formats.
"""

import re
import unicodedata
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

# The maximum length of a number format in Excel.
_MAX_FORMAT_CHARACTERS = 255
_TOKEN = re.compile(
    r"(?P<digit>[0#])"
    r"|[_*]."  # a blank of a character's width, or a character that fills the cell
    r"|\[(?:\$-[^\]]*|[A-Za-z]+[0-9]*)\]"  # a locale or a colour
    r'|\\(?P<escaped>.)|"(?P<quoted>[^"]*)"|(?P<plain>[-+ ()/:])'
)
_SECTION_END = ";"
_MIN_ZEROS = 2

# The digits and literal texts of a section, for example ``("0", "0", "0", "-", "0", "0")``.
_Section = Sequence[tuple[bool, str]]


class ZeroFormat:
    """A number format that adds leading zeros.

    Args:
        sections: the sections for positive numbers, negative numbers and zero. The last two may be
            missing, or contain no digits.
    """

    def __init__(self, sections: Sequence[_Section]) -> None:
        self._sections = sections

    def show(self, value: str) -> str:
        number = Decimal(value).to_integral_value(ROUND_HALF_UP)
        index = 1 if number < 0 else 2 if number == 0 else 0
        has_section = index < len(self._sections)
        section = self._sections[index if has_section else 0]
        if not any(is_digit for is_digit, _ in section):
            # The section shows a text instead of the number, or hides the number.
            return value
        digits = [*str(number.copy_abs())]
        pieces: list[str] = []
        places = sum(is_digit for is_digit, _ in section)
        for is_digit, text in reversed(section):
            places -= is_digit
            if not is_digit:
                pieces.append(text)
            elif places == 0:
                # The first place shows all remaining digits.
                pieces.append("".join(digits) or text.replace("#", ""))
            elif digits:
                pieces.append(digits.pop())
            elif text == "0":
                pieces.append(text)
        sign = "-" if number < 0 and not has_section else ""
        return sign + "".join(reversed(pieces)).strip()


@lru_cache(1_024)
def parse_zero_format(code: str) -> ZeroFormat | None:
    """Return the number format if it adds leading zeros and shows whole numbers, or else ``None``.

    A format with a decimal point, a separator of thousands, a percent sign, a currency or a
    condition isn't such a format.
    """
    if len(code) > _MAX_FORMAT_CHARACTERS:
        return None
    sections: list[list[tuple[bool, str]]] = [[]]
    position = 0
    while position < len(code):
        if code[position] == _SECTION_END:
            sections.append([])
            position += 1
            continue
        token = _TOKEN.match(code, position)
        if token is None:
            break
        position = token.end()
        if token["digit"]:
            # After a zero, "#" also shows a digit.
            has_zero = (True, "0") in sections[-1]
            sections[-1].append((True, "0" if has_zero else token["digit"]))
            continue
        text = token["escaped"] or token["quoted"] or token["plain"] or ""
        if any(unicodedata.category(each) == "Sc" for each in text):
            return None
        sections[-1].append((False, text))
    number_sections = sections[:3]
    if position < len(code) and len(sections) <= len(number_sections):
        # A section for numbers contains something else.
        return None
    if number_sections[0].count((True, "0")) < _MIN_ZEROS:
        return None
    return ZeroFormat(number_sections)
