"""Tests that JSON documents are counted correctly, and cheaply, before they are parsed."""

import time
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core import json_parsing
from core.json_parsing import JsonLimits, JsonTooComplex, parse_json

MEGABYTE = 1024 * 1024
# Texts that contain the characters of JSON's syntax, and that need escapes.
TEXTS = st.text('"\\[]{},:a\u20ac\n', max_size=8)
DOCUMENTS = st.recursive(
    TEXTS | st.integers(-5, 5) | st.none(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(TEXTS, values, max_size=4),
    max_leaves=20,
)


def count_values(value: Any) -> tuple[int, int]:
    """Return the number of arrays and objects in a parsed document, and the number of commas."""
    if not isinstance(value, list | dict):
        return 0, 0
    counts = [count_values(each) for each in (value.values() if isinstance(value, dict) else value)]
    containers = sum(each[0] for each in counts)
    commas = sum(each[1] for each in counts)
    return 1 + containers, max(len(value) - 1, 0) + commas


def count_bytes(document: bytes) -> tuple[int, int]:
    """Return the number of brackets, braces and commas outside of strings."""
    containers = commas = 0
    is_in_string = is_escaped = False
    for character in document.decode("latin-1"):
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == '"':
            is_in_string = not is_in_string
        elif not is_in_string:
            containers += character in "[{"
            commas += character == ","
    return containers, commas


def assert_counted(document: bytes, containers: int, commas: int) -> None:
    assert not JsonLimits(containers, commas).are_exceeded_by(document)
    if containers:
        assert JsonLimits(containers - 1, commas).are_exceeded_by(document)
    if commas:
        assert JsonLimits(containers, commas - 1).are_exceeded_by(document)


@given(value=DOCUMENTS, chunk_bytes=st.integers(1, 12), is_indented=st.booleans())
def test_arrays_objects_and_commas_outside_of_strings_are_counted(
    value: Any, chunk_bytes: int, is_indented: bool
) -> None:
    document = orjson.dumps(value, option=orjson.OPT_INDENT_2 if is_indented else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_parsing, "_CHUNK_BYTES", chunk_bytes)
        assert_counted(document, *count_values(value))


@given(
    document=st.text('"\\[{,a', max_size=40)
    .map(str.encode)
    .filter(lambda text: b"\\[" not in text)
    .filter(lambda text: b"\\{" not in text)
    .filter(lambda text: b"\\," not in text),
    chunk_bytes=st.integers(1, 12),
)
@example(document=b'"\\\\",["\\\\\\",["],', chunk_bytes=4)
def test_invalid_documents_are_counted_byte_by_byte(document: bytes, chunk_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_parsing, "_CHUNK_BYTES", chunk_bytes)
        assert_counted(document, *count_bytes(document))


HOSTILE_PIECES = (
    b'""',
    b'"',
    b'\\"',
    b"\\\\",
    b"\\",
    b"[",
    b"{",
    b'",",',
    b'","a',
    b"[]",
    b'"[{",',
)


@pytest.mark.parametrize("piece", HOSTILE_PIECES)
@pytest.mark.parametrize("prefix", [b"", b'["'])
def test_hostile_documents_are_counted_with_little_time_and_memory(
    prefix: bytes, piece: bytes
) -> None:
    document = prefix + piece * (8 * MEGABYTE // len(piece))
    limits = JsonLimits(1_000_000, 1_000_000)
    began_at = time.process_time()
    limits.are_exceeded_by(document)
    # On an idle machine, 8 MB take at most 60 ms.
    assert time.process_time() - began_at < 1
    tracemalloc.start()
    try:
        limits.are_exceeded_by(document)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_document_above_the_limits_is_never_parsed() -> None:
    def parse(_: bytes) -> None:
        raise AssertionError

    document = b"[" + b"[],[]," * 20 + b"1]"
    with pytest.raises(JsonTooComplex):
        parse_json(document, JsonLimits(20, 20), parse=parse)
    assert parse_json(document, JsonLimits(41, 40)) == [[]] * 40 + [1]
