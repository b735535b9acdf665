from enum import StrEnum


class Lane(StrEnum):
    """A queue with its own workers, so that one kind of work can't hold up another."""

    IO = "io"
    MEDIA = "media"
    BULK = "bulk"
