"""A post as its author sent it, the text that is read from it, and what is written about it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

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
        """The post's links as links are compared, and bare names that its text shows."""
        shown = hyperlinks.find_links(self.text)
        return shown.union(map(hyperlinks.normalise_link, self.links))


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

    def to_fields(self) -> dict[str, str]:
        """Return the requested fields by name, in the format of the API's response."""
        tags = None if self.tags is None else ",".join(self.tags)
        fields = {"slug": self.slug, "summary": self.summary, "tags": tags}
        return {name: text for name, text in fields.items() if text is not None}


# The separator between tweets in the API's response. A tweet has only one line, so it can't contain
# this separator.
_TWEETS_APART = "\n\n"


def join_tweets(tweets: Iterable[str]) -> dict[str, str]:
    """Join all tweets into one text, which the API returns in the field `tweets`."""
    return {"tweets": _TWEETS_APART.join(tweets)}
