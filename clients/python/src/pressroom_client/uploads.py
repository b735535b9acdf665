"""Bodies of requests: JSON, forms, and files from a path, bytes or a stream."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

_UNNAMED = "upload"
_CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class File:
    """A file under a name of the caller's choice."""

    content: "str | os.PathLike[str] | bytes | IO[bytes] | Iterable[bytes]"
    name: str


# The path of a file, its bytes, an open file or another stream of bytes.
Upload = str | os.PathLike[str] | bytes | IO[bytes] | Iterable[bytes] | File


class Body:
    """The body of a call, made anew for each time that it is tried."""

    def __init__(self, kind: str | None, content: Any) -> None:
        self._kind = kind
        plain: Any = content.content if isinstance(content, File) else content
        self.filename = _name_of(content) if kind in {"bytes", "multipart"} else None
        self._start = _position(plain)
        is_at_hand = self._start is not None or isinstance(plain, (str, os.PathLike, bytes))
        if kind == "multipart" and not is_at_hand:
            # Such files are small; their parts are sent with their length.
            plain = b"".join(plain)
        self._content = plain

    @property
    def can_be_sent_again(self) -> bool:
        """A stream that can't be wound back can be sent once."""
        return not _is_stream(self._content) or self._start is not None

    def arguments(self, opened: ExitStack) -> dict[str, Any]:
        """httpx2's arguments for it. A file that is opened for it is closed with ``opened``."""
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
        if hasattr(content, "read") and content is self._content:
            # From where it stands, which httpx2 does not look at when it asks for the length.
            content = iter(partial(content.read, _CHUNK_BYTES), b"")
        return {"content": content, "headers": {"Content-Type": "application/octet-stream"}}


def _name_of(upload: Any) -> str | None:
    if isinstance(upload, File):
        return upload.name
    named = upload if isinstance(upload, (str, os.PathLike)) else getattr(upload, "name", None)
    return Path(named).name if isinstance(named, (str, os.PathLike)) else None


def _is_stream(content: Any) -> bool:
    """Return whether sending uses the content up: an open file, or what gives bytes one by one."""
    return hasattr(content, "read") or hasattr(content, "__next__")


def _position(content: Any) -> int | None:
    """Where an open file stands, to which it can be wound back."""
    if not hasattr(content, "seekable") or not content.seekable():
        return None
    position: int = content.tell()
    return position
