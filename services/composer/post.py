"""A post as its writer sent it, what can be read in it, and what is written about it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

MAX_POST_TITLE_CHARACTERS = 500
MAX_POST_CONTENT_CHARACTERS = 1_000_000

Product = TypeVar("Product")


@dataclass(frozen=True)
class Post:
    """Either may hold Markdown or HTML; one of them isn't blank."""

    title: str
    content: str


@dataclass(frozen=True)
class PlainPost:
    """A post without its markup: the only form in which writers see one."""

    title: str
    # Running text, block by block: paragraphs, list items, quotes. No code, no tables, no markup.
    paragraphs: tuple[str, ...]
    headings: tuple[str, ...]
    # Absolute http(s) addresses and @handles that the post itself holds: the only ones that
    # anything written about it may hold.
    links: frozenset[str]
    mentions: frozenset[str]
    # In hexadecimal, of the content as it was sent: what names a post without words.
    content_hash: str = field(default="", compare=False)


class MetadataField(StrEnum):
    """What metadata can be asked for."""

    SLUG = "slug"
    SUMMARY = "summary"
    TAGS = "tags"


@dataclass(frozen=True)
class PostMetadata:
    """Absent is what wasn't asked for."""

    slug: str | None = None
    summary: str | None = None
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SourcedResult(Generic[Product]):
    product: Product
    # The header ``Pressroom-Source``: `offline`, or `openai/<model>`, with what befell it.
    source: str
