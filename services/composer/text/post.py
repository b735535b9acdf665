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
# The separator between tweets in the field `tweets` of an API response. A tweet never contains the
# separator, because the separator contains a line break and a tweet doesn't.
_TWEET_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class Post:
    """A post with the markup that its author sent.

    The title and the content of a post may contain Markdown or HTML. A post has a title or content
    or both.
    """

    title: str
    content: str


@dataclass(frozen=True)
class PlainPost:
    """A post without markup.

    The functions that write metadata and tweets get a post only as a ``PlainPost``.

    Attributes:
        paragraphs: the blocks of running text, such as paragraphs, list items and quotes. Code
            blocks and tables are left out of ``paragraphs``.
        links: the absolute http and https URLs in the post. Metadata and tweets about the post may
            contain only the links in ``links``.
        mentions: the handles that the post mentions. Metadata and tweets about the post may mention
            only the handles in ``mentions``.
        content_hash: the SHA-256 hash of the post's content before markup was removed, in
            hexadecimal.
        listed: the indexes of those paragraphs that are list items.
    """

    title: CleanText
    paragraphs: tuple[CleanText, ...]
    headings: tuple[CleanText, ...]
    links: frozenset[str]
    mentions: frozenset[str]
    content_hash: str = field(default="", compare=False)
    listed: frozenset[int] = frozenset()

    def to_payload(self) -> dict[str, Any]:
        """Convert a post to JSON fields, which a child process sends to the worker."""
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
        """Restore a post from JSON fields that `to_payload` returned."""
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
        """Return the links in a post in normalised form, including host names without a scheme."""
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
        """Return a mapping from the requested metadata fields to texts, for the API's response."""
        tags = None if self.tags is None else ",".join(self.tags)
        fields = {"slug": self.slug, "summary": self.summary, "tags": tags}
        return {name: text for name, text in fields.items() if text is not None}


def join_tweets(tweets: Iterable[str]) -> dict[str, str]:
    """Return the field `tweets` of the API's response, which contains all tweets in one text."""
    return {"tweets": _TWEET_SEPARATOR.join(tweets)}
