from dataclasses import dataclass

from core.refusals.media import IMAGE_TRUNCATED, IMAGE_UNREADABLE
from core.refusals.refusal import Refusal


@dataclass(frozen=True, slots=True)
class ConvertedImage:
    """An image as it is stored. Width and height in pixels; frames as in `data`, 1 for a still."""

    data: bytes
    mime_type: str
    extension: str
    width: int
    height: int
    frames: int
    blurhash: str


class UnreadableImage(Exception):
    """An image we refuse. `code` is stable and dotted; `message` names the rule and the place."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def refused(refusal: Refusal, **values: object) -> UnreadableImage:
    """The entry of the catalogue, as what a converter's process can send."""
    return UnreadableImage(refusal.code, refusal.filled(**values).sentence)


def unreadable(reason: str) -> UnreadableImage:
    return refused(IMAGE_UNREADABLE, reason=reason)


def truncated(reason: str) -> UnreadableImage:
    return refused(IMAGE_TRUNCATED, reason=reason)
