"""Reads a post, Markdown and HTML mixed, into text without markup."""

import hashlib
import re

import pyromark
from justhtml import stream

from services.composer.text import hyperlinks
from services.composer.text.characters import (
    CleanText,
    clean_line,
    join_lines,
    remove_invisible_characters,
)
from services.composer.text.front_matter import remove_front_matter
from services.composer.text.hidden_text import (
    VOID,
    Token,
    Visibility,
    find_element_ends,
    read_visibility,
)
from services.composer.text.post import PlainPost, Post
from services.composer.text.template_marks import remove_marks

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
# HTML parsers ignore the slash in `<span/>` and leave the element open. The author meant an empty
# element, so an end tag is added.
_SELF_CLOSED = re.compile(r"<([a-z][a-z0-9-]*+)([^<>]*+)(?<=/)>", re.I)
_LISTS = frozenset({"ol", "ul", "dl"})
_FOOTNOTES = ("footnote-reference", "footnote-definition")
_MAX_HREF_CHARACTERS = 2048


def _with_end_tag(tag: re.Match[str]) -> str:
    return tag[0] if tag[1].lower() in VOID else f"<{tag[1]}{tag[2][:-1]}></{tag[1]}>"


class HtmlBlocks:
    """The blocks of an HTML text; those of tables are apart."""

    def __init__(self, html: str) -> None:
        self.paragraphs: list[str] = []
        # The places of those paragraphs that are in lists.
        self.listed: set[int] = set()
        self.headings: list[str] = []
        self.tabled: list[str] = []
        self.urls: list[str] = []
        # There is text that no block holds.
        self.loose = False
        self._pieces: list[str] = []
        self._heading = False
        self._tables = 0
        self._lists = 0
        self._open = 0
        # A stack of the open elements whose style affects the visibility of text. Each entry has
        # the index of the element's end, whether the text is invisible, and whether its font size
        # is 0.
        self._around: list[tuple[int, bool, bool]] = []
        tokens: list[Token] = list(stream(_SELF_CLOSED.sub(_with_end_tag, html)))
        self._ends = find_element_ends(tokens, BLOCKS)
        place = 0
        while place < len(tokens):
            place = self._read(tokens, place)
        self._close_block()

    def _read(self, tokens: list[Token], place: int) -> int:
        """Process a token, and return the index of the next token.

        Hidden elements are skipped as a whole.
        """
        kind, data = tokens[place]
        while self._around and self._around[-1][0] <= place:
            self._around.pop()
        if kind == "text" and not (self._around and any(self._around[-1][1:])):
            self._pieces.append(data)
            if not self._open and not data.isspace():
                self.loose = True
        elif kind == "start":
            if self._start(place, *data[:2]):
                end = self._ends[place]
                # Skip the end tag of the hidden element too. If another tag closed the element
                # implicitly, don't skip that tag.
                return end + (tokens[end : end + 1] == [("end", data[0])])
        elif kind == "end" and data in BLOCKS:
            self._close_block()
            self._heading = False
            self._open = max(self._open - 1, 0)
            self._tables = max(self._tables - (data == "table"), 0)
            self._lists = max(self._lists - (data in _LISTS), 0)
        return place + 1

    def _start(self, place: int, tag: str, attributes: dict[str, str | None]) -> bool:
        """Process a start tag; return whether to skip the whole element."""
        # A line break within a paragraph is a space, two end it.
        if tag in BLOCKS or (tag == "br" and self._pieces[-1:] == ["\n"]):
            self._close_block()
        elif tag == "br":
            self._pieces.append("\n")
        if tag in VOID:
            return False
        visibility = read_visibility(attributes)
        classes = attributes.get("class") or ""
        is_footnote = any(name in classes for name in _FOOTNOTES)
        if tag in _SILENT or visibility.is_hidden or is_footnote:
            return True
        self._inherit(place, visibility)
        self._open += tag in BLOCKS
        self._tables += tag == "table"
        self._lists += tag in _LISTS
        self._heading = tag in HEADINGS or (self._heading and tag not in BLOCKS)
        href = attributes.get("href") if tag == "a" else None
        if href and len(href) <= _MAX_HREF_CHARACTERS:
            self.urls.append(href.strip())
        return False

    def _inherit(self, place: int, visibility: Visibility) -> None:
        """Store the visibility of the text in an element, because inner elements inherit it."""
        is_invisible, has_no_size = visibility.is_invisible, visibility.has_no_size
        if is_invisible is None and has_no_size is None:
            return
        _, invisible_around, no_size_around = (
            self._around[-1] if self._around else (0, False, False)
        )
        self._around.append(
            (
                self._ends[place],
                invisible_around if is_invisible is None else is_invisible,
                no_size_around if has_no_size is None else has_no_size,
            )
        )

    def _close_block(self) -> None:
        text = join_lines("".join(self._pieces))
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


_OPTIONS = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_FOOTNOTES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_GFM
)
# Markdown of a million characters can stand for a hundred times as much HTML. No honest post
# grows to twice its length.
_MAX_HTML_CHARACTERS = 2_000_000
_MAX_CLEANING_ROUNDS = 6
# Reading again is for markup within paragraphs. Longer texts lose every mark instead, and so do
# all texts that follow once this much of a post was read again.
_MAX_PARAGRAPH_CHARACTERS = 20_000
_MAX_REREAD_CHARACTERS = 200_000
_MARKS = re.compile(r"[<>&\[\]*_`~\\]")
# Characters that begin or end markup or template marks, such as `{{ name }}` and `%%name%%`.
_STRIPPED = re.compile(r"[<>&\[\]*_`~\\{}|«»]|%{2,}")
# Incomplete markup, which the parsers treat as ordinary text. The pattern matches a run of equal
# characters only as a whole, because retrying from each character would take quadratic time.
_LEFT_OVER = re.compile(
    r"\*{2,}|_{2,}|~{2,}|`+|(?<=\])[(\[]|(?<!&)&++(?=#?\w+;)|(?<!!)!++(?=\[)|(?P<tag><[</!?]*+\w?)"
)
_INDENTED_BLOCK = re.compile(rf"^[ \t]*</?(?:{'|'.join(sorted(BLOCKS))})\b", re.I | re.M)
# The first and the last line of a `:::` container, which Pandoc and Docusaurus use.
_CONTAINER = re.compile(r"^:::[^\n]*$", re.M)
_INDENT = re.compile(r"^[ \t]+", re.M)
# Private characters stand in for URLs while their text is read again, and one begins it, so that
# the line isn't taken for a heading, a list or a rule; no post has any of them.
_HIDDEN = re.compile("\ue000([0-9]{1,5})\ue001")
_FIRST = "\ue002"


def parse_post(post: Post) -> PlainPost:
    """Never fails: markup that can't be understood is text, or is left out."""
    content = remove_marks(remove_front_matter(remove_invisible_characters(post.content)))
    blocks = HtmlBlocks(content) if content.lstrip().startswith("<") else None
    # Text outside all blocks is Markdown that follows some HTML.
    if blocks is None or blocks.loose:
        # Markdown would take indented HTML for code.
        is_indented = _INDENTED_BLOCK.search(content)
        markdown = _INDENT.sub("", content) if is_indented else content
        markdown = _CONTAINER.sub("", markdown)
        blocks = HtmlBlocks(pyromark.html(markdown, options=_OPTIONS)[:_MAX_HTML_CHARACTERS])
    title = clean_text(post.title)
    texts = _each_clean(blocks.paragraphs)
    # A paragraph that is left empty has no place among the paragraphs.
    listed = [place in blocks.listed for place, text in enumerate(texts) if text]
    paragraphs = tuple(filter(None, texts)) or tuple(filter(None, _each_clean(blocks.tabled)))
    headings = tuple(filter(None, _each_clean(blocks.headings)))
    shown = "\n".join((title, *headings, *paragraphs))
    return PlainPost(
        title=title,
        paragraphs=paragraphs,
        headings=headings,
        links=hyperlinks.find_urls(shown) | hyperlinks.find_urls("\n".join(blocks.urls)),
        mentions=hyperlinks.find_mentions(shown),
        content_hash=hashlib.sha256(post.content.encode(errors="replace")).hexdigest(),
        listed=frozenset(place for place, is_listed in enumerate(listed) if is_listed),
    )


def clean_text(text: str) -> CleanText:
    """Return one line of the text's visible characters, free of markup."""
    return text if isinstance(text, CleanText) else _clean_line(clean_line(text))


def _clean_line(text: str) -> CleanText:
    if len(text) > _MAX_PARAGRAPH_CHARACTERS:
        return strip_markup(text)
    for _ in range(_MAX_CLEANING_ROUNDS):
        before = text
        text = clean_line(remove_marks(text))
        if _MARKS.search(text):
            text = _without_markup(text)
        if text == before:
            return CleanText(text)
    return strip_markup(text)


def _without_markup(text: str) -> str:
    again = _read_again(text)
    return again if again != text else clean_line(_LEFT_OVER.sub(_without_left_over, text))


def _without_left_over(mark: re.Match[str]) -> str:
    """Return the text that replaces incomplete markup."""
    run = mark[0]
    if run[0] in "*_~`":
        # Emphasis marks are removed without a space, because they can be inside a word.
        return ""
    if mark["tag"] is None:
        return " "
    if run[-1] not in "</!?":
        return f" {run[-1]}"
    # Characters such as `<!` aren't a tag if no word follows them. Keep the last `!` or `?`, which
    # is punctuation, and remove the characters before it.
    last = max(run.rfind("!"), run.rfind("?"))
    return f" {run[last:]}" if last > 0 else run


def strip_markup(text: str) -> CleanText:
    """Remove all characters that can be markup.

    Removing them is faster than parsing, so this function is used for very long texts.
    """
    return CleanText(clean_line(_STRIPPED.sub(" ", remove_marks(text))))


def _each_clean(blocks: list[str]) -> list[CleanText]:
    texts = []
    left = _MAX_REREAD_CHARACTERS
    for line in map(clean_line, blocks):
        left -= len(line) if _MARKS.search(line) else 0
        texts.append(_clean_line(line) if left > 0 else strip_markup(line))
    return texts


def _read_again(text: str) -> str:
    """Read the Markdown within HTML, the HTML within Markdown's escapes, entities of entities."""
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"\ue000{len(hidden) - 1}\ue001"

    def show(match: re.Match[str]) -> str:
        # A number that none of ours has comes from private characters that entities spell.
        number = int(match[1])
        return hidden[number] if number < len(hidden) else ""

    safe = hyperlinks.URL.sub(hide, text)
    html = pyromark.html(f"{_FIRST} {safe}", options=_OPTIONS)
    blocks = HtmlBlocks(html[:_MAX_HTML_CHARACTERS])
    again = " ".join((*blocks.headings, *blocks.paragraphs, *blocks.tabled)).replace(_FIRST, "")
    return clean_line(_HIDDEN.sub(show, again))
