"""Finds the ends of HTML elements, and the elements that browsers and mail programs hide."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Token = tuple[str, Any]

VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr keygen".split()
)
# Maps a start tag to the open elements that it closes. For example, `<dt>` closes an open `<dd>`.
# In HTML, the end tags of the implicitly closed elements are optional.
_IMPLICITLY_CLOSED = {
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
_ELEMENTS_WITH_OPTIONAL_END = frozenset(_IMPLICITLY_CLOSED) | {"p", "html", "head"}
# The elements whose inner tags can't close outer elements.
_SCOPES = frozenset("table td th caption ul ol dl object ruby".split())
_CELLS = frozenset({"td", "th", "caption"})
_TABLE_PARTS = _CELLS | {"tr", "tbody", "thead", "tfoot", "colgroup"}
# The elements whose end tag closes the element and all scopes inside it.
_SCOPE_CLOSING_ELEMENTS = _SCOPES | _TABLE_PARTS | {"body", "html"}

_COMMENT = re.compile(r"/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/|\Z)")
_LENGTH = re.compile(r"([+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})) ?(%|[a-z]*)")
_FONT_SIZE = re.compile(r"(?:^| )0(?:\.0)?(?:%|[a-z]{2,4})?(?=[ /]|$)")
_RELATIVE_UNITS = frozenset({"em", "%", "ex", "ch"})
_RELATIVE_SIZES = frozenset({"smaller", "larger", "inherit", "unset"})
_EMPTY_CLIP = re.compile(r"rect\( ?(?:[01](?:px|em|pt|%)?(?: ?, ?| )?){4}\)|inset\( ?(?:50|100)%")
_MIN_VISIBLE_OFFSET = -900


@dataclass(frozen=True, slots=True)
class Visibility:
    """If an attribute is ``None``, the element inherits the value from the enclosing element."""

    # True if the element and all its inner elements are hidden. An inner element's style can't
    # override ``is_hidden``.
    is_hidden: bool = False
    # Inner elements inherit ``is_invisible`` and ``has_no_size``, but their style can override
    # both.
    is_invisible: bool | None = None
    has_no_size: bool | None = None


def read_visibility(attributes: Mapping[str, str | None]) -> Visibility:
    if "hidden" in attributes:
        return Visibility(is_hidden=True)
    text = attributes.get("style")
    if not text:
        return Visibility()
    style = _parse_declarations(text)
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


def _parse_declarations(style: str) -> dict[str, str]:
    """The last value of a CSS property applies, but values with `!important` take precedence."""
    plain: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in " ".join(_COMMENT.sub(" ", style).casefold().split()).split(";"):
        name, _, text = declaration.partition(":")
        value, mark, _ = text.partition("!")
        (important if mark else plain)[name.strip()] = value.strip()
    return plain | important


def _parse_length(value: str | None) -> tuple[float, str] | None:
    match = _LENGTH.fullmatch(value) if value else None
    return (float(match[1]), match[2]) if match else None


def _is_zero(value: str | None) -> bool:
    length = _parse_length(value)
    return length is not None and length[0] == 0


def _has_no_size(style: Mapping[str, str]) -> bool | None:
    size = style.get("font-size")
    if size is None:
        font = style.get("font")
        return None if font is None else bool(_FONT_SIZE.search(font))
    length = _parse_length(size)
    if length is not None and length[0] == 0:
        return True
    # Return ``None`` for a relative font size, because a relative size hides text only if the outer
    # font size is 0.
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
    """Detect text that is far beyond the left or top edge of the screen."""
    is_moved = style.get("position") in {"absolute", "fixed"}
    sides = ("text-indent", *(("left", "top", "margin-left") if is_moved else ()))
    lengths = (_parse_length(style.get(side)) for side in sides)
    return any(length is not None and length[0] <= _MIN_VISIBLE_OFFSET for length in lengths)


def find_element_ends(tokens: Sequence[Token], blocks: frozenset[str]) -> dict[int, int]:
    """Return the index of each element's end, keyed by the index of its start tag.

    If an optional end tag is missing, the element ends at the tag that closes it implicitly. If a
    required end tag is missing, the element ends at the next block tag, so that it can't hide the
    rest of the post. Void elements such as `<br>` are omitted.
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
    """An element, such as a table, whose inner tags can't close outer elements."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.elements: list[tuple[str, int]] = []
        self.counts: Counter[str] = Counter()


class _OpenElements:
    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        # The indexes of start tags whose required end tag is missing.
        self.unclosed: set[int] = set()
        self._scopes = [_Scope("")]
        self._totals: Counter[str] = Counter()

    def start(self, tag: str, place: int, *, is_block: bool) -> None:
        if tag in _TABLE_PARTS:
            while self._scopes[-1].tag in _CELLS:
                self._leave_scope(place)
        for closed_tag in (*_IMPLICITLY_CLOSED.get(tag, ()), *(("p",) if is_block else ())):
            if self._scopes[-1].counts[closed_tag]:
                self._pop(closed_tag, place)
        self._scopes[-1].elements.append((tag, place))
        self._scopes[-1].counts[tag] += 1
        self._totals[tag] += 1
        if tag in _SCOPES:
            self._scopes.append(_Scope(tag))

    def end(self, tag: str, place: int) -> None:
        if tag in _SCOPE_CLOSING_ELEMENTS and self._totals[tag]:
            while not self._scopes[-1].counts[tag]:
                self._leave_scope(place)
        if self._scopes[-1].counts[tag]:
            self._pop(tag, place)

    def close_all(self, place: int) -> None:
        while self._scopes:
            self._leave_scope(place)

    def _leave_scope(self, place: int) -> None:
        for tag, start in self._scopes.pop().elements:
            self._record_end(tag, start, place)

    def _pop(self, tag: str, place: int) -> None:
        scope = self._scopes[-1]
        popped = ""
        while popped != tag:
            popped, start = scope.elements.pop()
            scope.counts[popped] -= 1
            self._record_end(popped, start, place, is_own=popped == tag)

    def _record_end(self, tag: str, start: int, place: int, *, is_own: bool = False) -> None:
        self._totals[tag] -= 1
        if is_own or tag in _ELEMENTS_WITH_OPTIONAL_END:
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
