"""Parses posts in Markdown or HTML, and removes the markup."""

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
# The HTML elements whose content doesn't belong to the running text.
_SKIPPED_ELEMENTS = frozenset(
    "applet audio button canvas datalist del embed figcaption head iframe map math nav noembed "
    "noframes noscript object pre rp rt s script select strike style svg template textarea title "
    "video xmp".split()
)
# Matches a self-closing HTML tag such as `<span/>`. HTML parsers ignore the slash in a self-closing
# tag, so the element stays open. The author of a self-closing tag means an empty element, so
# Pressroom adds an end tag.
_SELF_CLOSING_TAG = re.compile(r"<([a-z][a-z0-9-]*+)([^<>]*+)(?<=/)>", re.I)
_LIST_ELEMENTS = frozenset({"ol", "ul", "dl"})
_FOOTNOTE_CLASSES = ("footnote-reference", "footnote-definition")
_MAX_HREF_CHARACTERS = 2048
_OPTIONS = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_FOOTNOTES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_GFM
)
# The HTML of a hostile post can be a hundred times as long as its Markdown. The HTML of a real post
# is less than twice as long as its Markdown.
_MAX_HTML_CHARACTERS = 2_000_000
_MAX_CLEANING_ROUNDS = 6
# The maximum number of characters per paragraph, and per post, that are parsed again to find nested
# markup. Text beyond the limits isn't parsed a second time. From text above the limits, all
# characters that could be markup are removed.
_MAX_REPARSED_PARAGRAPH_CHARACTERS = 20_000
_MAX_REPARSED_CHARACTERS = 200_000
_MARKUP_CHARACTER = re.compile(r"[<>&\[\]*_`~\\]")
# Matches the delimiters of markup and of template placeholders, such as `{{ name }}` and
# `%%name%%`.
_STRIPPED_CHARACTERS = re.compile(r"[<>&\[\]*_`~\\{}|«»]|%{2,}")
# Matches incomplete markup, which the parsers treat as ordinary text. The pattern for incomplete
# markup matches only complete runs of a character, because matching at each character would take
# quadratic time.
_INCOMPLETE_MARKUP = re.compile(
    r"\*{2,}|_{2,}|~{2,}|`+|(?<=\])[(\[]|(?<!&)&++(?=#?\w+;)|(?<!!)!++(?=\[)|(?P<tag><[</!?]*+\w?)"
)
_INDENTED_BLOCK = re.compile(rf"^[ \t]*</?(?:{'|'.join(sorted(BLOCKS))})\b", re.I | re.M)
# Matches the first and last line of a `:::` container, a block in the Markdown of Pandoc and
# Docusaurus.
_CONTAINER = re.compile(r"^:::[^\n]*$", re.M)
_INDENT = re.compile(r"^[ \t]+", re.M)
# While a text is parsed again, each URL is replaced with a placeholder of private-use Unicode
# characters. A post can't contain such placeholders, because private-use characters are removed
# from posts.
_URL_PLACEHOLDER = re.compile("\ue000([0-9]{1,5})\ue001")
# A private-use character that is inserted before a text, so that the parser doesn't read the text
# as a heading, list or horizontal rule.
_TEXT_START = "\ue002"


class HtmlBlocks:
    """``listed`` holds the indexes of the paragraphs that are part of a list."""

    def __init__(self, html: str) -> None:
        self.paragraphs: list[str] = []
        self.listed: set[int] = set()
        self.headings: list[str] = []
        self.table_texts: list[str] = []
        self.urls: list[str] = []
        self.has_loose_text = False
        self._pieces: list[str] = []
        self._is_heading = False
        self._open_tables = 0
        self._open_lists = 0
        self._open_blocks = 0
        # A stack of the open elements whose style affects the visibility of text. For each open
        # element, ``_enclosing_styles`` contains the index of its end, whether its text is
        # invisible, and whether its font size is 0.
        self._enclosing_styles: list[tuple[int, bool, bool]] = []
        tokens: list[Token] = list(stream(_SELF_CLOSING_TAG.sub(_add_end_tag, html)))
        self._ends = find_element_ends(tokens, BLOCKS)
        place = 0
        while place < len(tokens):
            place = self._process_token(tokens, place)
        self._close_block()

    def _process_token(self, tokens: list[Token], place: int) -> int:
        """Return the index of the next token to process."""
        kind, data = tokens[place]
        while self._enclosing_styles and self._enclosing_styles[-1][0] <= place:
            self._enclosing_styles.pop()
        if kind == "text" and not (self._enclosing_styles and any(self._enclosing_styles[-1][1:])):
            self._pieces.append(data)
            if not self._open_blocks and not data.isspace():
                self.has_loose_text = True
        elif kind == "start":
            if self._process_start_tag(place, *data[:2]):
                end = self._ends[place]
                # Continue after the end tag of the hidden element, or at the tag that closed it
                # implicitly.
                return end + (tokens[end : end + 1] == [("end", data[0])])
        elif kind == "end" and data in BLOCKS:
            self._close_block()
            self._is_heading = False
            self._open_blocks = max(self._open_blocks - 1, 0)
            self._open_tables = max(self._open_tables - (data == "table"), 0)
            self._open_lists = max(self._open_lists - (data in _LIST_ELEMENTS), 0)
        return place + 1

    def _process_start_tag(self, place: int, tag: str, attributes: dict[str, str | None]) -> bool:
        """Return whether to skip the whole element."""
        # Two consecutive `<br>` tags end the paragraph, and a single `<br>` becomes a space.
        if tag in BLOCKS or (tag == "br" and self._pieces[-1:] == ["\n"]):
            self._close_block()
        elif tag == "br":
            self._pieces.append("\n")
        if tag in VOID:
            return False
        visibility = read_visibility(attributes)
        classes = attributes.get("class") or ""
        is_footnote = any(name in classes for name in _FOOTNOTE_CLASSES)
        if tag in _SKIPPED_ELEMENTS or visibility.is_hidden or is_footnote:
            return True
        self._inherit(place, visibility)
        self._open_blocks += tag in BLOCKS
        self._open_tables += tag == "table"
        self._open_lists += tag in _LIST_ELEMENTS
        self._is_heading = tag in HEADINGS or (self._is_heading and tag not in BLOCKS)
        href = attributes.get("href") if tag == "a" else None
        if href and len(href) <= _MAX_HREF_CHARACTERS:
            self.urls.append(href.strip())
        return False

    def _inherit(self, place: int, visibility: Visibility) -> None:
        is_invisible = visibility.is_invisible
        has_no_size = visibility.has_no_size
        if is_invisible is None and has_no_size is None:
            return
        _, invisible_around, no_size_around = (
            self._enclosing_styles[-1] if self._enclosing_styles else (0, False, False)
        )
        self._enclosing_styles.append(
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
        if self._is_heading:
            self.headings.append(text)
        elif self._open_tables:
            self.table_texts.append(text)
        else:
            if self._open_lists:
                self.listed.add(len(self.paragraphs))
            self.paragraphs.append(text)


def _add_end_tag(tag: re.Match[str]) -> str:
    return tag[0] if tag[1].lower() in VOID else f"<{tag[1]}{tag[2][:-1]}></{tag[1]}>"


def parse_post(post: Post) -> PlainPost:
    """Parsing never fails. Invalid markup becomes text or is removed."""
    content = remove_marks(remove_front_matter(remove_invisible_characters(post.content)))
    blocks = HtmlBlocks(content) if content.lstrip().startswith("<") else None
    # If a post begins with HTML but has text outside all blocks, treat it as Markdown with embedded
    # HTML.
    if blocks is None or blocks.has_loose_text:
        # Remove the indentation of HTML in Markdown, because Markdown treats indented lines as
        # code.
        is_indented = _INDENTED_BLOCK.search(content)
        markdown = _INDENT.sub("", content) if is_indented else content
        markdown = _CONTAINER.sub("", markdown)
        blocks = HtmlBlocks(pyromark.html(markdown, options=_OPTIONS)[:_MAX_HTML_CHARACTERS])
    title = clean_text(post.title)
    texts = _clean_blocks(blocks.paragraphs)
    # Leave out empty paragraphs, because ``listed`` must have exactly one entry per paragraph of
    # the post.
    listed = [place in blocks.listed for place, text in enumerate(texts) if text]
    paragraphs = tuple(filter(None, texts)) or tuple(
        filter(None, _clean_blocks(blocks.table_texts))
    )
    headings = tuple(filter(None, _clean_blocks(blocks.headings)))
    visible_text = "\n".join((title, *headings, *paragraphs))
    return PlainPost(
        title=title,
        paragraphs=paragraphs,
        headings=headings,
        links=hyperlinks.find_urls(visible_text) | hyperlinks.find_urls("\n".join(blocks.urls)),
        mentions=hyperlinks.find_mentions(visible_text),
        content_hash=hashlib.sha256(post.content.encode(errors="replace")).hexdigest(),
        listed=frozenset(place for place, is_listed in enumerate(listed) if is_listed),
    )


def clean_text(text: str) -> CleanText:
    return text if isinstance(text, CleanText) else _clean_line(clean_line(text))


def _clean_line(text: str) -> CleanText:
    if len(text) > _MAX_REPARSED_PARAGRAPH_CHARACTERS:
        return strip_markup(text)
    for _ in range(_MAX_CLEANING_ROUNDS):
        before = text
        text = clean_line(remove_marks(text))
        if _MARKUP_CHARACTER.search(text):
            text = _remove_markup(text)
        if text == before:
            return CleanText(text)
    return strip_markup(text)


def _remove_markup(text: str) -> str:
    reparsed = _reparse(text)
    return (
        reparsed
        if reparsed != text
        else clean_line(_INCOMPLETE_MARKUP.sub(_replace_incomplete_markup, text))
    )


def _replace_incomplete_markup(mark: re.Match[str]) -> str:
    run = mark[0]
    if run[0] in "*_~`":
        # Remove emphasis marks without inserting a space, because emphasis can begin or end inside
        # a word.
        return ""
    if mark["tag"] is None:
        return " "
    if run[-1] not in "</!?":
        return f" {run[-1]}"
    # `<!` begins a tag only if a word follows. If no word follows, the `!` of `<!` is kept as
    # punctuation.
    last = max(run.rfind("!"), run.rfind("?"))
    return f" {run[last:]}" if last > 0 else run


def strip_markup(text: str) -> CleanText:
    """Remove all characters that could be markup, without parsing the text."""
    return CleanText(clean_line(_STRIPPED_CHARACTERS.sub(" ", remove_marks(text))))


def _clean_blocks(blocks: list[str]) -> list[CleanText]:
    texts = []
    remaining = _MAX_REPARSED_CHARACTERS
    for line in map(clean_line, blocks):
        remaining -= len(line) if _MARKUP_CHARACTER.search(line) else 0
        texts.append(_clean_line(line) if remaining > 0 else strip_markup(line))
    return texts


def _reparse(text: str) -> str:
    """Parse a text again, to find Markdown inside HTML, escaped HTML, and escaped entities."""
    urls: list[str] = []

    def replace_url(match: re.Match[str]) -> str:
        urls.append(match[0])
        return f"\ue000{len(urls) - 1}\ue001"

    def restore_url(match: re.Match[str]) -> str:
        # The number in a URL placeholder may be invalid, because a hostile post can forge
        # placeholders with HTML entities.
        number = int(match[1])
        return urls[number] if number < len(urls) else ""

    safe = hyperlinks.URL.sub(replace_url, text)
    html = pyromark.html(f"{_TEXT_START} {safe}", options=_OPTIONS)
    blocks = HtmlBlocks(html[:_MAX_HTML_CHARACTERS])
    reparsed = " ".join((*blocks.headings, *blocks.paragraphs, *blocks.table_texts)).replace(
        _TEXT_START, ""
    )
    return clean_line(_URL_PLACEHOLDER.sub(restore_url, reparsed))
