"""Finds the elements of an HTML text that no reader sees, and the end of each element."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Token = tuple[str, Any]

VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr keygen".split()
)
# The tags that end an element whose own end tag may be missing.
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
# No tag within one of these ends an element outside of it.
_SCOPES = frozenset("table td th caption ul ol dl object ruby".split())
_CELLS = frozenset({"td", "th", "caption"})
_PARTS_OF_TABLES = _CELLS | {"tr", "tbody", "thead", "tfoot", "colgroup"}
# The end tag of each of these elements ends the scopes in it.
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
    """The visibility of the text in an element; None where the style has no such rule."""

    # Nothing in the element is visible, even if an element in it has another style.
    is_hidden: bool = False
    # Elements in this element inherit these two.
    is_invisible: bool | None = None
    has_no_size: bool | None = None


def visibility_of(attributes: Mapping[str, str | None]) -> Visibility:
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
    """Return the values of a style by property, in lower case; the last one counts."""
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
    # Half of nothing is nothing.
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
    """Return whether the text stands beyond the left or upper edge of the screen."""
    is_moved = style.get("position") in {"absolute", "fixed"}
    sides = ("text-indent", *(("left", "top", "margin-left") if is_moved else ()))
    lengths = (_length(style.get(side)) for side in sides)
    return any(length is not None and length[0] <= _FAR_AWAY for length in lengths)


def element_ends(tokens: Sequence[Token], blocks: frozenset[str]) -> dict[int, int]:
    """Return the place of each element's end by the place of its start tag.

    The end of an element is its end tag, or the tag that ends it where its own may be missing.
    An element that is never closed ends at the next tag of a block, so that a forgotten end tag
    of a hidden element doesn't hide the rest of the post. Void elements have no end.
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
    """The open elements in a scope, outermost first."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.elements: list[tuple[str, int]] = []
        self.counts: Counter[str] = Counter()


class _OpenElements:
    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        # The places of start tags whose element another element's end has closed.
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
        """Close the innermost element of this tag, and all in it."""
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
        """Take the elements off the scope down to the innermost one of this tag."""
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
