"""Reads a post, Markdown and HTML mixed, into text without markup."""

import hashlib
import re

import pyromark

from services.composer.post import PlainPost, Post
from services.composer.text import hyperlinks
from services.composer.text.characters import CleanText, normalise_visible, visible_line
from services.composer.text.html_blocks import BLOCKS, HtmlBlocks

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
# Fragments that the parsers leave as text because they aren't quite markup, and that still look
# like it.
_LEFT_OVER = re.compile(
    r"\*{2,}|_{2,}|~{2,}|`+|(?<=\])[(\[]|<[</!?]*(?=[\w!?])|&+(?=#?\w+;)|!+(?=\[)"
)
_INDENTED_BLOCK = re.compile(rf"^[ \t]*</?(?:{'|'.join(sorted(BLOCKS))})\b", re.I | re.M)
_INDENT = re.compile(r"^[ \t]+", re.M)
# Private characters stand in for URLs while their text is read again, and one begins it, so that
# the line isn't taken for a heading, a list or a rule; no post has any of them.
_HIDDEN = re.compile("\ue000([0-9]{1,5})\ue001")
_FIRST = "\ue002"


def read(post: Post) -> PlainPost:
    """Never fails: markup that can't be understood is text, or is left out."""
    content = normalise_visible(post.content)
    blocks = HtmlBlocks(content) if content.lstrip().startswith("<") else None
    # Text outside all blocks is Markdown that follows some HTML.
    if blocks is None or blocks.loose:
        # Markdown would take indented HTML for code.
        is_indented = _INDENTED_BLOCK.search(content)
        markdown = _INDENT.sub("", content) if is_indented else content
        blocks = HtmlBlocks(pyromark.html(markdown, options=_OPTIONS)[:_MAX_HTML_CHARACTERS])
    title = clean(post.title)
    texts = _each_clean(blocks.paragraphs)
    # What is left empty has no place among the paragraphs.
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


def clean(text: str) -> CleanText:
    """One line of the text's visible characters, free of markup."""
    return text if isinstance(text, CleanText) else _clean_line(visible_line(text))


def _clean_line(text: str) -> CleanText:
    if len(text) > _MAX_PARAGRAPH_CHARACTERS:
        return strip_markup(text)
    for _ in range(_MAX_CLEANING_ROUNDS):
        if not _MARKS.search(text):
            return CleanText(text)
        before, text = text, _read_again(text)
        if text == before:
            # Marks of emphasis stand within words, brackets between them.
            text = _LEFT_OVER.sub(lambda mark: "" if mark[0][0] in "*_~`" else " ", text)
            text = visible_line(text)
            if text == before:
                return CleanText(text)
    return strip_markup(text)


def strip_markup(text: str) -> CleanText:
    """The text without any character that may be markup; for texts too long to be read again."""
    return CleanText(visible_line(_MARKS.sub(" ", text)))


def _each_clean(blocks: list[str]) -> list[CleanText]:
    texts = []
    left = _MAX_REREAD_CHARACTERS
    for line in map(visible_line, blocks):
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
    return visible_line(_HIDDEN.sub(show, again))
