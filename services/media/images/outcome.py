from dataclasses import dataclass
from enum import StrEnum

from core.refusals.media import IMAGE_TRUNCATED, IMAGE_UNREADABLE
from core.refusals.refusal import Refusal


class RenditionName(StrEnum):
    """What a rendition is for: a page, in this width in pixels, or a mail."""

    NARROW = "320"
    MEDIUM = "640"
    WIDE = "1280"
    MAIL = "mail"


@dataclass(frozen=True, slots=True)
class Rendition:
    """A smaller copy of an image, or one that each mail program shows."""

    name: RenditionName
    data: bytes
    mime_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ConvertedImage:
    """An image as it is stored. `width` and `height` are in pixels; a still has 1 of `frames`."""

    data: bytes
    mime_type: str
    width: int
    height: int
    frames: int
    blurhash: str
    renditions: tuple[Rendition, ...] = ()


@dataclass(eq=False)
class UnreadableImage(Exception):
    """Raised for an image that we refuse; the message names the rule and the place."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def refused(refusal: Refusal, **values: object) -> UnreadableImage:
    """Make an entry of the catalogue of refusals an error that the converter process can send."""
    return UnreadableImage(refusal.code, refusal.filled(**values).sentence)


def unreadable(reason: str) -> UnreadableImage:
    return refused(IMAGE_UNREADABLE, reason=reason)


def truncated(reason: str) -> UnreadableImage:
    return refused(IMAGE_TRUNCATED, reason=reason)
