"""Defines types for a post with markup, a post without markup, and a post's metadata."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from services.composer.text import hyperlinks
from services.composer.text.characters import CleanText

MAX_POST_TITLE_CHARACTERS = 500
MAX_POST_CONTENT_CHARACTERS = 1_000_000
# Separates the tweets in the response field `tweets`. A tweet never contains a line break, so the
# separator is unambiguous.
_TWEET_SEPARATOR = "\n\n"
MAX_TWEETS = 5


@dataclass(frozen=True)
class Post:
    """A post in Markdown or HTML. It has a title, content or both."""

    title: str
    content: str


@dataclass(frozen=True)
class PlainPost:
    """A post without markup. Metadata and tweets are written only from a ``PlainPost``.

    Attributes:
        paragraphs: the blocks of running text, such as paragraphs, list items and quotes, but not
            code and tables.
        links: the absolute http and https URLs in the post, which metadata and tweets may contain.
        content_hash: the SHA-256 hash of the post's content including its markup, in hexadecimal.
        listed: the indexes of paragraphs that are list items.
    """

    title: CleanText
    paragraphs: tuple[CleanText, ...]
    headings: tuple[CleanText, ...]
    links: frozenset[str]
    mentions: frozenset[str]
    content_hash: str = field(default="", compare=False)
    listed: frozenset[int] = frozenset()

    def to_payload(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "paragraphs": self.paragraphs,
            "headings": self.headings,
            "links": sorted(self.links),
            "mentions": sorted(self.mentions),
            "content_hash": self.content_hash,
            "listed": sorted(self.listed),
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "PlainPost":
        return cls(
            title=CleanText(payload["title"]),
            paragraphs=tuple(map(CleanText, payload["paragraphs"])),
            headings=tuple(map(CleanText, payload["headings"])),
            links=frozenset(payload["links"]),
            mentions=frozenset(payload["mentions"]),
            content_hash=payload["content_hash"],
            listed=frozenset(payload["listed"]),
        )

    @property
    def text(self) -> str:
        return "\n".join((self.title, *self.headings, *self.paragraphs)).strip()

    @cached_property
    def comparable_links(self) -> frozenset[str]:
        """Return the post's links in normalised form, including host names without a scheme."""
        text_links = hyperlinks.find_links(self.text)
        return text_links.union(map(hyperlinks.normalise_link, self.links))


class MetadataField(StrEnum):
    SLUG = "slug"
    SUMMARY = "summary"
    TAGS = "tags"


@dataclass(frozen=True)
class PostMetadata:
    """The metadata of a post. Metadata fields that the caller didn't request are ``None``."""

    slug: str | None = None
    summary: str | None = None
    tags: tuple[str, ...] | None = None

    def to_fields(self) -> dict[str, str]:
        tags = None if self.tags is None else ",".join(self.tags)
        fields = {"slug": self.slug, "summary": self.summary, "tags": tags}
        return {name: text for name, text in fields.items() if text is not None}


def join_tweets(tweets: Iterable[str]) -> dict[str, str]:
    return {"tweets": _TWEET_SEPARATOR.join(tweets)}


def split_tweets(tweets: str) -> list[str]:
    return tweets.split(_TWEET_SEPARATOR)
