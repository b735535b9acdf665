"""Runs a child process for the post parser and the offline writer.

A hostile post can take a very long time to parse, or exploit a bug in the parser. The child process
keeps a hostile post from delaying the worker's other jobs or reading its secrets.
"""

import os
from collections.abc import Sequence
from typing import Any

from core.process import child_loop, confinement
from services.composer.offline import writer
from services.composer.text import markup
from services.composer.text.post import MetadataField, Post, join_tweets

# The child process exits if its memory exceeds this limit after it has processed a post. With all
# languages loaded and a post of the maximum length, a child process takes only 265 MB.
_MAX_RESIDENT_BYTES = 384 * 1024 * 1024
# The child process must be allowed to open files, because it loads dictionaries on demand. The
# child process must be allowed to write large files, because the language detector unpacks its
# model into a temporary file of 68 MB.
_MAX_OPEN_FILES = 64
_MAX_FILE_BYTES = 128 * 1024 * 1024


def main() -> None:
    # OpenBLAS must use one thread, because the confined child process can't start more threads.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    child_loop.answer_messages(_answer, confine=_confine, max_resident_bytes=_MAX_RESIDENT_BYTES)


def _confine(memory_bytes: int) -> None:
    confinement.limit_resources(
        memory_bytes, open_files=_MAX_OPEN_FILES, file_bytes=_MAX_FILE_BYTES
    )


def _answer(request: Any, _: bytes) -> tuple[Any, Sequence[bytes]]:
    plain = markup.parse_post(Post(request["title"], request["content"]))
    if "wanted" not in request:
        return plain.to_payload(), ()
    fields = frozenset(map(MetadataField, request["wanted"]))
    if not fields:
        return join_tweets(writer.write_tweets(plain)), ()
    return writer.write_metadata(plain, fields, plain.content_hash).to_fields(), ()


if __name__ == "__main__":
    main()
