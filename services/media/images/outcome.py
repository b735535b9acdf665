from dataclasses import dataclass

from core.refusals.media import IMAGE_TRUNCATED, IMAGE_UNREADABLE
from core.refusals.refusal import Refusal


@dataclass(frozen=True, slots=True)
class ConvertedImage:
    """An image as it is stored. `width` and `height` are in pixels; a still has 1 of `frames`."""

    data: bytes
    mime_type: str
    width: int
    height: int
    frames: int
    blurhash: str


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
