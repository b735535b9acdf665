"""Builds request bodies, such as JSON, forms, and files from a path, bytes or a stream."""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

_UNNAMED = "upload"
_CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class File:
    """A file with a name that the caller chooses."""

    content: "str | os.PathLike[str] | bytes | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]"
    name: str


# An upload is a path, bytes, an open file, another stream of bytes, or a ``File``.
Upload = str | os.PathLike[str] | bytes | IO[bytes] | Iterable[bytes] | File

# The asynchronous client also sends asynchronous streams of bytes.
AsyncUpload = Upload | AsyncIterable[bytes]


class Body:
    """The body of an API call.

    For each attempt, the object returns the arguments for the HTTP client.
    """

    def __init__(self, kind: str | None, content: Any) -> None:
        self._kind = kind
        file_content: Any = content.content if isinstance(content, File) else content
        self.filename = _find_name(content) if kind in {"bytes", "multipart"} else None
        self._start = _find_position(file_content)
        if kind == "multipart" and not _has_length(file_content):
            # Read the whole file into memory, because a multipart body needs the length of the
            # file.
            file_content = b"".join(file_content)
        self._content = file_content

    @property
    def can_be_sent_again(self) -> bool:
        """Return whether the body can be sent again.

        A stream that can't be rewound can be sent only once.
        """
        return not _is_stream(self._content) or self._start is not None

    def create_arguments(self, opened: ExitStack) -> dict[str, Any]:
        """Return the arguments with which httpx2 sends the body in one attempt.

        Args:
            opened: an exit stack, which closes the files that this method opens.
        """
        if self._kind is None or self._content is None:
            return {}
        if self._kind == "json":
            return {"json": self._content}
        if self._kind == "form":
            return {"data": {k: v for k, v in self._content.items() if v is not None}}
        content = self._content
        if isinstance(content, (str, os.PathLike)):
            content = opened.enter_context(Path(content).open("rb"))  # noqa: SIM115
        elif self._start is not None:
            content.seek(self._start)
        if self._kind == "multipart":
            return {"files": {"file": (self.filename or _UNNAMED, content)}}
        if _is_file(content) and content is self._content:
            # Send the rest of the file from its current position, because httpx2 would calculate
            # the length of the whole file.
            content = iter(partial(content.read, _CHUNK_BYTES), b"")
        return {"content": content, "headers": {"Content-Type": "application/octet-stream"}}


async def read_chunks(content: Any) -> AsyncIterator[bytes]:
    """Yield the content in chunks. A thread reads files and synchronous streams."""
    if isinstance(content, AsyncIterable):
        async for chunk in content:
            yield chunk
    else:
        is_file = _is_file(content)
        chunks = iter(partial(content.read, _CHUNK_BYTES), b"") if is_file else iter(content)
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield chunk


async def read_into_memory(upload: Any) -> Any:
    """Return the upload. The content becomes bytes if the length of the content is unknown."""
    content = upload.content if isinstance(upload, File) else upload
    if _has_length(content):
        return upload
    chunks = [chunk async for chunk in read_chunks(content)]
    return File(b"".join(chunks), _find_name(upload) or _UNNAMED)


def _find_name(upload: Any) -> str | None:
    if isinstance(upload, File):
        return upload.name
    path = upload if isinstance(upload, (str, os.PathLike)) else getattr(upload, "name", None)
    return Path(path).name if isinstance(path, (str, os.PathLike)) else None


def _is_stream(content: Any) -> bool:
    """Return whether the content is consumed when it is sent, like an open file or an iterator."""
    return any(hasattr(content, name) for name in ("read", "__next__", "__anext__"))


def _is_file(content: Any) -> bool:
    """Return whether the content is an open file with synchronous methods."""
    return hasattr(content, "read") and not isinstance(content, AsyncIterable)


def _has_length(content: Any) -> bool:
    is_known = isinstance(content, (str, os.PathLike, bytes))
    return is_known or _find_position(content) is not None


def _find_position(content: Any) -> int | None:
    """Return the current position of a file that can be rewound, or ``None`` for other content."""
    if isinstance(content, AsyncIterable) or not hasattr(content, "seekable"):
        return None
    position: int | None = content.tell() if content.seekable() else None
    return position
