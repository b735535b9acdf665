"""Reads what a writer sent, Markdown and HTML mixed, into text without markup."""

import hashlib
import re

import pyromark
from justhtml import stream

from services.composer.post import PlainPost, Post
from services.composer.text import hyperlinks
from services.composer.text.characters import normalise_visible, one_line
from services.composer.text.html_blocks import BLOCKS, HtmlBlockParser

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
# Reading again is for marks within paragraphs; longer texts lose every mark instead, and so do
# all that follow once this much of a post was read again.
_MAX_PARAGRAPH_CHARACTERS = 20_000
_MAX_REREAD_CHARACTERS = 200_000
_MARKS = re.compile(r"[<>&\[\]*_`~\\]")
# What the parsers leave as text because it isn't quite markup, and still looks like it.
_LEFT_OVER = re.compile(
    r"\*{2,}|_{2,}|~{2,}|`+|(?<=\])[(\[]|<[</!?]*(?=[\w!?])|&+(?=#?\w+;)|!+(?=\[)"
)
_INDENTED_BLOCK = re.compile(rf"^[ \t]*</?(?:{'|'.join(sorted(BLOCKS))})\b", re.I | re.M)
_INDENT = re.compile(r"^[ \t]+", re.M)
# Private characters stand in for addresses while their text is read again, and one begins it,
# so that the line isn't taken for a heading, a list or a rule; none is in a post.
_HIDDEN = re.compile("\ue000(\\d+)\ue001")
_FIRST = "\ue002"


def read(post: Post) -> PlainPost:
    """Never fails: whatever can't be understood is text, or nothing."""
    walk = _walk(normalise_visible(post.content))
    title = clean_text(one_line(normalise_visible(post.title)))
    paragraphs = _settled_all(walk.paragraphs) or _settled_all(walk.tabled)
    headings = _settled_all(walk.headings)
    shown = "\n".join((title, *headings, *paragraphs))
    return PlainPost(
        title=title,
        paragraphs=paragraphs,
        headings=headings,
        links=hyperlinks.find_urls(shown) | hyperlinks.find_urls("\n".join(walk.addresses)),
        mentions=hyperlinks.find_mentions(shown),
        content_hash=hashlib.sha256(post.content.encode(errors="replace")).hexdigest(),
    )


def clean_text(text: str) -> str:
    """One line of text from which reading takes nothing more."""
    if len(text) > _MAX_PARAGRAPH_CHARACTERS:
        return strip_markup(text)
    for _ in range(_MAX_CLEANING_ROUNDS):
        if not _MARKS.search(text):
            return text
        before, text = text, _read_again(text)
        if text == before:
            text = one_line(_LEFT_OVER.sub(_left_out, text))
            if text == before:
                return text
    return strip_markup(text)


def _left_out(match: re.Match[str]) -> str:
    """Marks of emphasis stand within words, brackets between them."""
    return "" if match[0][0] in "*_~`" else " "


def strip_markup(text: str) -> str:
    return one_line(_MARKS.sub(" ", text))


def _settled_all(blocks: list[str]) -> tuple[str, ...]:
    texts = []
    left = _MAX_REREAD_CHARACTERS
    for block in blocks:
        text = one_line(normalise_visible(block))
        if _MARKS.search(text):
            left -= len(text)
            text = clean_text(text) if left > 0 else strip_markup(text)
        texts.append(text)
    return tuple(filter(None, texts))


def _walk(content: str) -> HtmlBlockParser:
    if content.lstrip().startswith("<"):
        walk = _walk_html(content)
        # Text outside all blocks is Markdown that follows some HTML.
        if not walk.loose:
            return walk
    if _INDENTED_BLOCK.search(content):
        # Markdown would take indented HTML for code.
        content = _INDENT.sub("", content)
    return _walk_html(pyromark.html(content, options=_OPTIONS)[:_MAX_HTML_CHARACTERS])


def _walk_html(html: str) -> HtmlBlockParser:
    walk = HtmlBlockParser()
    for kind, data in stream(html):
        walk.take(kind, data)
    return walk.finished()


def _read_again(text: str) -> str:
    """Markdown within HTML, HTML within Markdown's escapes, entities of entities."""
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"\ue000{len(hidden) - 1}\ue001"

    safe = hyperlinks.ADDRESS.sub(hide, text)
    html = pyromark.html(f"{_FIRST} {safe}", options=_OPTIONS)
    walk = _walk_html(html[:_MAX_HTML_CHARACTERS])
    again = " ".join((*walk.headings, *walk.paragraphs, *walk.tabled)).replace(_FIRST, "")
    return _HIDDEN.sub(lambda match: hidden[int(match[1])], one_line(again))
