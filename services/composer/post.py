"""A post as its author sent it, the text that is read from it, and what is written about it."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from services.composer.text import hyperlinks
from services.composer.text.characters import CleanText

MAX_POST_TITLE_CHARACTERS = 500
MAX_POST_CONTENT_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Post:
    """Title and content may hold Markdown or HTML; at most one of them is blank."""

    title: str
    content: str


@dataclass(frozen=True)
class PlainPost:
    """A post without its markup: the only form in which writers see one."""

    title: CleanText
    # Running text, block by block: paragraphs, list items, quotes. No code, no tables, no markup.
    paragraphs: tuple[CleanText, ...]
    headings: tuple[CleanText, ...]
    # Absolute http(s) URLs and @handles that the post itself holds: no text about the post may
    # hold any other.
    links: frozenset[str]
    mentions: frozenset[str]
    # SHA-256 of the content as it was sent, in hexadecimal; it names a post without words.
    content_hash: str = field(default="", compare=False)
    # The places of those paragraphs that are items of a list.
    listed: frozenset[int] = frozenset()

    @property
    def text(self) -> str:
        return "\n".join((self.title, *self.headings, *self.paragraphs)).strip()

    @cached_property
    def own_links(self) -> frozenset[str]:
        """The post's links as links are compared, and bare names that its text shows."""
        shown = hyperlinks.find_links(self.text)
        return shown.union(map(hyperlinks.canonical_link, self.links))


class MetadataField(StrEnum):
    SLUG = "slug"
    SUMMARY = "summary"
    TAGS = "tags"


@dataclass(frozen=True)
class PostMetadata:
    """``None`` stands for a field that was not requested."""

    slug: str | None = None
    summary: str | None = None
    tags: tuple[str, ...] | None = None
