"""Runs a child process that parses posts and writes metadata without a language model.

The offline writer writes metadata and tweets without a language model. A hostile post can keep the
parser busy for a long time, or exploit a bug in the parser. Because posts are parsed in a child
process, a hostile post can't delay the worker's other jobs or read the worker's secrets.
"""

import os
from collections.abc import Sequence
from typing import Any

from core.process import child_loop, confinement
from services.composer import offline
from services.composer.text import markup
from services.composer.text.post import MetadataField, Post, join_tweets

# If the memory of the child process exceeds this limit after a post, the child process exits. A
# child process that has loaded the models of all languages and a post of the maximum length takes
# only 265 MB of memory.
_MAX_RESIDENT_BYTES = 384 * 1024 * 1024
# The confined child process may open files, because dictionaries are loaded on demand. The child
# process may write large files, because the language detector unpacks its model into a temporary
# file of 68 MB.
_MAX_OPEN_FILES = 64
_MAX_FILE_BYTES = 128 * 1024 * 1024


def main() -> None:
    # Limit the OpenBLAS library to one thread, because the confined child process can't start more
    # threads.
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
        return join_tweets(offline.write_tweets(plain)), ()
    return offline.write_metadata(plain, fields, plain.content_hash).to_fields(), ()


if __name__ == "__main__":
    main()
