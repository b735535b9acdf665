"""The child process that reads posts and writes offline about them.

Reading a post computes for as long as its author likes. `text_processes` asks this process, so that
neither other work of the worker waits nor its secrets are near.
"""

import os
from collections.abc import Sequence
from typing import Any

from core.process import child_loop, confinement
from services.composer import offline
from services.composer.post import MetadataField, Post, join_tweets
from services.composer.text import markup

# The models of all languages take 265 MB, together with a post of the greatest length.
_MAX_RESIDENT_BYTES = 384 * 1024 * 1024
# Dictionaries are opened when a post first needs them. The model of languages is unpacked into a
# temporary file of 68 MB.
_MAX_OPEN_FILES = 64
_MAX_FILE_BYTES = 128 * 1024 * 1024


def main() -> None:
    # The library would start a thread for each core, and this process may start none.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    child_loop.serve(_answer, confine=_confine, max_resident_bytes=_MAX_RESIDENT_BYTES)


def _confine(memory_bytes: int) -> None:
    confinement.limit(memory_bytes, open_files=_MAX_OPEN_FILES, file_bytes=_MAX_FILE_BYTES)


def _answer(request: Any, _: bytes) -> tuple[Any, Sequence[bytes]]:
    plain = markup.read(Post(request["title"], request["content"]))
    if "wanted" not in request:
        return plain.to_payload(), ()
    wanted = frozenset(map(MetadataField, request["wanted"]))
    if not wanted:
        return join_tweets(offline.tweets(plain)), ()
    return offline.metadata(plain, wanted, plain.content_hash).to_fields(), ()


if __name__ == "__main__":
    main()
