"""Finds the end of each HTML element, and the elements that browsers and mail programs hide."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Token = tuple[str, Any]

VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr keygen".split()
)
# HTML lets authors omit some end tags. This maps start tags to the open elements that they close
# implicitly. For example, `<dt>` closes an open `<dd>`.
_ENDED_BY = {
    "li": ("li",),
    "dt": ("dt", "dd"),
    "dd": ("dt", "dd"),
    "td": ("td", "th"),
    "th": ("td", "th"),
    "tr": ("tr", "td", "th"),
    "thead": ("thead", "tbody", "tfoot", "tr", "td", "th"),
    "tbody": ("thead", "tbody", "tfoot", "tr", "td", "th"),
    "tfoot": ("thead", "tbody", "tfoot", "tr", "td", "th"),
    "option": ("option",),
    "rt": ("rt", "rp"),
    "rp": ("rt", "rp"),
    "body": ("head",),
}
_OPTIONAL_END = frozenset(_ENDED_BY) | {"p", "html", "head"}
# These elements are scopes: a tag inside one of them can't close an element outside of it.
_SCOPES = frozenset("table td th caption ul ol dl object ruby".split())
_CELLS = frozenset({"td", "th", "caption"})
_PARTS_OF_TABLES = _CELLS | {"tr", "tbody", "thead", "tfoot", "colgroup"}
# The end tag of such an element also closes all scopes that are still open inside the element.
_ENDS_SCOPES = _SCOPES | _PARTS_OF_TABLES | {"body", "html"}

_COMMENT = re.compile(r"/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/|\Z)")
_LENGTH = re.compile(r"([+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})) ?(%|[a-z]*)")
_FONT_SIZE = re.compile(r"(?:^| )0(?:\.0)?(?:%|[a-z]{2,4})?(?=[ /]|$)")
_RELATIVE_UNITS = frozenset({"em", "%", "ex", "ch"})
_RELATIVE_SIZES = frozenset({"smaller", "larger", "inherit", "unset"})
_EMPTY_CLIP = re.compile(r"rect\( ?(?:[01](?:px|em|pt|%)?(?: ?, ?| )?){4}\)|inset\( ?(?:50|100)%")
_FAR_AWAY = -900


@dataclass(frozen=True, slots=True)
class Visibility:
    """The visibility of an element's text.

    ``None`` means that the element inherits the value from the element around it.
    """

    # The element is hidden with all its content. Styles of inner elements can't make this content
    # visible.
    is_hidden: bool = False
    # Inner elements inherit these two values, but can override them.
    is_invisible: bool | None = None
    has_no_size: bool | None = None


def read_visibility(attributes: Mapping[str, str | None]) -> Visibility:
    if "hidden" in attributes:
        return Visibility(is_hidden=True)
    text = attributes.get("style")
    if not text:
        return Visibility()
    style = _declarations(text)
    visibility = style.get("visibility")
    return Visibility(
        is_hidden=style.get("display") == "none"
        or style.get("mso-hide") in {"all", "screen"}
        or _is_zero(style.get("opacity"))
        or _is_clipped(style)
        or _is_far_away(style),
        is_invisible=None if visibility is None else visibility in {"hidden", "collapse"},
        has_no_size=_has_no_size(style),
    )


def _declarations(style: str) -> dict[str, str]:
    """Return the value of each property in a `style` attribute, in lower case.

    If a property occurs more than once, its last value wins. Values with
    `!important` win over other values.
    """
    plain: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in " ".join(_COMMENT.sub(" ", style).casefold().split()).split(";"):
        name, _, text = declaration.partition(":")
        value, mark, _ = text.partition("!")
        (important if mark else plain)[name.strip()] = value.strip()
    return plain | important


def _length(value: str | None) -> tuple[float, str] | None:
    match = _LENGTH.fullmatch(value) if value else None
    return (float(match[1]), match[2]) if match else None


def _is_zero(value: str | None) -> bool:
    length = _length(value)
    return length is not None and length[0] == 0


def _has_no_size(style: Mapping[str, str]) -> bool | None:
    size = style.get("font-size")
    if size is None:
        font = style.get("font")
        return None if font is None else bool(_FONT_SIZE.search(font))
    length = _length(size)
    if length is not None and length[0] == 0:
        return True
    # A relative font size doesn't change whether the size is 0, because every multiple of 0 is 0.
    is_relative = size in _RELATIVE_SIZES or (length is not None and length[1] in _RELATIVE_UNITS)
    return None if is_relative else False


def _is_clipped(style: Mapping[str, str]) -> bool:
    if _EMPTY_CLIP.match(style.get("clip", "")) or _EMPTY_CLIP.match(style.get("clip-path", "")):
        return True
    overflow = " ".join(style.get(f"overflow{axis}", "") for axis in ("", "-x", "-y"))
    sizes = (f"{bound}{side}" for side in ("height", "width") for bound in ("", "max-"))
    is_cut = "hidden" in overflow or "clip" in overflow
    return is_cut and any(_is_zero(style.get(size)) for size in sizes)


def _is_far_away(style: Mapping[str, str]) -> bool:
    """Return whether the style moves the text far outside the left or top edge of the screen."""
    is_moved = style.get("position") in {"absolute", "fixed"}
    sides = ("text-indent", *(("left", "top", "margin-left") if is_moved else ()))
    lengths = (_length(style.get(side)) for side in sides)
    return any(length is not None and length[0] <= _FAR_AWAY for length in lengths)


def find_element_ends(tokens: Sequence[Token], blocks: frozenset[str]) -> dict[int, int]:
    """Map the index of each start tag to the index of the token that ends the element.

    An element normally ends at its end tag. If HTML lets authors omit the end tag, the element ends
    at the tag that implicitly closes it. If a required end tag is missing, the element ends at the
    next tag of a block. Otherwise, a forgotten end tag would hide the rest of the post. Void
    elements, such as `<br>`, are not in the result.
    """
    elements = _OpenElements()
    for place, (kind, data) in enumerate(tokens):
        if kind == "start" and data[0] not in VOID:
            elements.start(data[0], place, is_block=data[0] in blocks)
        elif kind == "end":
            elements.end(data, place)
    elements.close_all(len(tokens))
    _end_at_next_block(tokens, blocks, elements.unclosed, elements.ends)
    return elements.ends


class _Scope:
    """A scope and its open elements. The outermost element comes first.

    A scope is an element, such as a table, whose inner tags can't close elements outside of it.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.elements: list[tuple[str, int]] = []
        self.counts: Counter[str] = Counter()


class _OpenElements:
    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        # The indexes of start tags whose end tag is missing although HTML requires it.
        self.unclosed: set[int] = set()
        self._scopes = [_Scope("")]
        self._totals: Counter[str] = Counter()

    def start(self, tag: str, place: int, *, is_block: bool) -> None:
        if tag in _PARTS_OF_TABLES:
            while self._scopes[-1].tag in _CELLS:
                self._leave_scope(place)
        for ended in (*_ENDED_BY.get(tag, ()), *(("p",) if is_block else ())):
            if self._scopes[-1].counts[ended]:
                self._pop(ended, place)
        self._scopes[-1].elements.append((tag, place))
        self._scopes[-1].counts[tag] += 1
        self._totals[tag] += 1
        if tag in _SCOPES:
            self._scopes.append(_Scope(tag))

    def end(self, tag: str, place: int) -> None:
        """Close the innermost open element with this tag, and all elements inside it."""
        if tag in _ENDS_SCOPES and self._totals[tag]:
            while not self._scopes[-1].counts[tag]:
                self._leave_scope(place)
        if self._scopes[-1].counts[tag]:
            self._pop(tag, place)

    def close_all(self, place: int) -> None:
        while self._scopes:
            self._leave_scope(place)

    def _leave_scope(self, place: int) -> None:
        for tag, start in self._scopes.pop().elements:
            self._note_end(tag, start, place)

    def _pop(self, tag: str, place: int) -> None:
        """Close elements from the inside out, until an element with this tag is closed."""
        scope = self._scopes[-1]
        popped = ""
        while popped != tag:
            popped, start = scope.elements.pop()
            scope.counts[popped] -= 1
            self._note_end(popped, start, place, is_own=popped == tag)

    def _note_end(self, tag: str, start: int, place: int, *, is_own: bool = False) -> None:
        self._totals[tag] -= 1
        if is_own or tag in _OPTIONAL_END:
            self.ends[start] = place
        else:
            self.unclosed.add(start)


def _end_at_next_block(
    tokens: Sequence[Token], blocks: frozenset[str], unclosed: set[int], ends: dict[int, int]
) -> None:
    next_block = len(tokens)
    for place in range(len(tokens) - 1, -1, -1):
        if place in unclosed:
            ends[place] = next_block
        kind, data = tokens[place]
        if (kind == "start" and data[0] in blocks) or (kind == "end" and data in blocks):
            next_block = place
