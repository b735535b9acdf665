from dataclasses import dataclass


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


def unreadable(message: str) -> UnreadableImage:
    return UnreadableImage("image.unreadable", message)


def truncated(message: str) -> UnreadableImage:
    return UnreadableImage("image.truncated", message)
