"""Parses JSON documents, but rejects documents that would become too many objects.

A JSON document of a few megabytes can become millions of objects, which take seconds of CPU time
and a hundred times the memory of the text. The bytes are therefore counted before they are parsed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from core.process.garbage_collection import pause_collection

# Each chunk is counted separately, so that counting needs little memory.
_CHUNK_BYTES = 256 * 1024
# Parsing a document up to this size creates too few objects to delay other work.
_SMALL_DOCUMENT_BYTES = 16 * 1024
_OBJECTS_AS_ARRAYS = bytes.maketrans(b"{", b"[")
_UNCOUNTED_BYTES = bytes(set(range(256)) - set(b'"[{,'))


class JsonTooComplex(ValueError):
    pass


@dataclass(frozen=True)
class JsonLimits:
    """The maximum number of arrays and objects in a document, and of commas outside of strings.

    The number of strings and numbers in a document depends on its commas.
    """

    max_containers: int = 20_000
    max_commas: int = 100_000

    def are_exceeded_by(self, document: bytes) -> bool:
        """Check without parsing, at a cost of at most 6 ms of CPU time per megabyte for any
        content.

        If the document is invalid JSON, the function counts at least what a parser would parse
        before the first error.
        """
        if len(document) <= min(self.max_containers, self.max_commas):
            return False
        containers = document.count(b"[") + document.count(b"{")
        if containers <= self.max_containers and document.count(b",") <= self.max_commas:
            return False
        return self._are_exceeded_outside_strings(document)

    def _are_exceeded_outside_strings(self, document: bytes) -> bool:
        containers = 0
        commas = 0
        is_in_string = False
        is_escaped = False
        for start in range(0, len(document), _CHUNK_BYTES):
            # Skip the first byte if the last backslash of the previous chunk escapes the byte.
            chunk = document[start + is_escaped : start + _CHUNK_BYTES]
            backslashes = len(chunk) - len(chunk.rstrip(b"\\"))
            is_escaped = backslashes % 2 == 1
            if b"\\" in chunk:
                # Remove escaped backslashes first, because the quotation mark in ``\\"`` isn't
                # escaped.
                chunk = chunk.replace(b"\\\\", b"").replace(b'\\"', b"")
            chunk = chunk.translate(_OBJECTS_AS_ARRAYS, _UNCOUNTED_BYTES)
            # Two adjacent quotation marks don't change which bytes are in a string.
            parts = chunk.replace(b'""', b"").split(b'"')
            outside = b"".join(parts[is_in_string::2])
            is_in_string ^= len(parts) % 2 == 0
            containers += outside.count(b"[")
            commas += outside.count(b",")
            if containers > self.max_containers or commas > self.max_commas:
                return True
        return False


DEFAULT_JSON_LIMITS = JsonLimits()


def parse_json(
    document: bytes,
    limits: JsonLimits = DEFAULT_JSON_LIMITS,
    *,
    parse: Callable[[bytes], Any] = orjson.loads,
) -> Any:
    """Return the content of a JSON document, or raise ``JsonTooComplex`` if it exceeds ``limits``.

    Raises the errors of ``parse``, such as ``orjson.JSONDecodeError``.
    """
    if limits.are_exceeded_by(document):
        raise JsonTooComplex
    if len(document) <= _SMALL_DOCUMENT_BYTES:
        return parse(document)
    with pause_collection():
        return parse(document)
