"""Defines a post as its author sent it, the post's plain text, and the metadata about the post."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from services.composer.text import hyperlinks
from services.composer.text.characters import CleanText

MAX_POST_TITLE_CHARACTERS = 500
MAX_POST_CONTENT_CHARACTERS = 1_000_000
# The separator between tweets in the API's response. A tweet has only one line, so no tweet
# contains the separator.
_TWEET_SEPARATOR = "\n\n"


@dataclass(frozen=True)
class Post:
    """A post as its author sent it.

    The title and the content may contain Markdown or HTML. At most one of the two is blank.
    """

    title: str
    content: str


@dataclass(frozen=True)
class PlainPost:
    """A post without its markup. Writers never get a post in any other form.

    Attributes:
        paragraphs: the blocks of running text, such as paragraphs, list items and quotes. Code and
            tables are removed.
        links: the absolute http(s) URLs in the post. Texts about the post must not
            contain any further link.
        mentions: the handles in the post. Texts about the post must not contain any further
            handle.
        content_hash: the SHA-256 hash of the content as it was sent, in hexadecimal.
        listed: the indexes of the paragraphs that are list items.
    """

    title: CleanText
    paragraphs: tuple[CleanText, ...]
    headings: tuple[CleanText, ...]
    links: frozenset[str]
    mentions: frozenset[str]
    content_hash: str = field(default="", compare=False)
    listed: frozenset[int] = frozenset()

    def to_payload(self) -> dict[str, Any]:
        """Convert the post to JSON fields, to send it to another process."""
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
        """Restore a post from the JSON fields that `to_payload` returned."""
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
        """The post's links in normalised form, including host names in its text."""
        text_links = hyperlinks.find_links(self.text)
        return text_links.union(map(hyperlinks.normalise_link, self.links))


class MetadataField(StrEnum):
    SLUG = "slug"
    SUMMARY = "summary"
    TAGS = "tags"


@dataclass(frozen=True)
class PostMetadata:
    """The metadata of a post. Fields that were not requested are ``None``."""

    slug: str | None = None
    summary: str | None = None
    tags: tuple[str, ...] | None = None

    def to_fields(self) -> dict[str, str]:
        """Return the requested fields by name, in the format of the API's response."""
        tags = None if self.tags is None else ",".join(self.tags)
        fields = {"slug": self.slug, "summary": self.summary, "tags": tags}
        return {name: text for name, text in fields.items() if text is not None}


def join_tweets(tweets: Iterable[str]) -> dict[str, str]:
    """Join all tweets into one text, which the API returns in the field `tweets`."""
    return {"tweets": _TWEET_SEPARATOR.join(tweets)}
