"""Parses HTML as a stream of tags, so that no depth of nesting can exhaust it, into its blocks."""

from typing import Any

from justhtml import stream

from services.composer.text.characters import one_line

HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
BLOCKS = HEADINGS | frozenset(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset "
    "figcaption figure footer form head header hgroup hr html legend li main nav ol option p pre "
    "section summary table tbody td tfoot th thead title tr ul".split()
)
_SILENT = frozenset(
    "applet audio button canvas datalist del embed figcaption head iframe map math nav noembed "
    "noframes noscript object pre rp rt s script select strike style svg template textarea title "
    "video xmp".split()
)
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr keygen".split()
)
_LISTS = frozenset({"ol", "ul", "dl"})
_FOOTNOTES = ("footnote-reference", "footnote-definition")
_MAX_HREF_CHARACTERS = 2048


class HtmlBlocks:
    """The blocks of an HTML text; those of tables are apart."""

    def __init__(self, html: str) -> None:
        self.paragraphs: list[str] = []
        # The places of those paragraphs that are in lists.
        self.listed: set[int] = set()
        self.headings: list[str] = []
        self.tabled: list[str] = []
        self.urls: list[str] = []
        # Whether there is text that no block holds.
        self.loose = False
        self._pieces: list[str] = []
        self._heading = False
        self._tables = 0
        self._lists = 0
        self._open = 0
        self._silent = ""
        self._depth = 0
        for kind, data in stream(html):
            self._take(kind, data)
        self._close_block()

    def _take(self, kind: str, data: Any) -> None:
        if self._silent:
            if kind == "start":
                self._depth += data[0] == self._silent
            elif kind == "end":
                self._depth -= data == self._silent
            if not self._depth:
                self._silent = ""
        elif kind == "text":
            self._pieces.append(data)
            if not self._open and not data.isspace():
                self.loose = True
        elif kind == "start":
            self._start(*data[:2])
        elif kind == "end" and data in BLOCKS:
            self._close_block()
            self._heading = False
            self._open = max(self._open - 1, 0)
            self._tables = max(self._tables - (data == "table"), 0)
            self._lists = max(self._lists - (data in _LISTS), 0)

    def _start(self, tag: str, attributes: dict[str, str | None]) -> None:
        # A line break within a paragraph is a space, two end it.
        if tag in BLOCKS or (tag == "br" and self._pieces[-1:] == ["\n"]):
            self._close_block()
        elif tag == "br":
            self._pieces.append("\n")
        if tag in _VOID:
            return
        style = (attributes.get("style") or "").replace(" ", "").casefold()
        classes = attributes.get("class") or ""
        is_hidden = "hidden" in attributes or "display:none" in style
        is_footnote = any(name in classes for name in _FOOTNOTES)
        if tag in _SILENT or is_hidden or is_footnote:
            self._silent, self._depth = tag, 1
            return
        self._open += tag in BLOCKS
        self._tables += tag == "table"
        self._lists += tag in _LISTS
        self._heading = tag in HEADINGS or (self._heading and tag not in BLOCKS)
        href = attributes.get("href") if tag == "a" else None
        if href and len(href) <= _MAX_HREF_CHARACTERS:
            self.urls.append(href.strip())

    def _close_block(self) -> None:
        text = one_line("".join(self._pieces))
        self._pieces.clear()
        if not text:
            return
        if self._heading:
            self.headings.append(text)
        elif self._tables:
            self.tabled.append(text)
        else:
            if self._lists:
                self.listed.add(len(self.paragraphs))
            self.paragraphs.append(text)
