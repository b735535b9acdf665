import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import repeat
from random import Random

import pytest

from core.errors import DomainError
from services.subscriptions.imports.formats.formats import open_member_rows
from services.subscriptions.imports.formats.line_blocks import MAX_LINE_CHARACTERS

MEGABYTE = 1024 * 1024
MAX_MEMORY_BYTES = 32 * MEGABYTE
# A line of the maximum length. The line consists of emoji, because no other character takes more
# memory than an emoji.
LONGEST_LINE = "\U0001f600".encode() * MAX_LINE_CHARACTERS


class GeneratedFile:
    """A file whose content is generated while it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while len(self._rest) < size and (piece := next(self._pieces, None)) is not None:
            self._rest += piece
        data = self._rest[:size]
        self._rest = self._rest[size:]
        return data


def generate_file(piece: bytes, megabytes: int = 50) -> Iterator[bytes]:
    yield b"email,name\n"
    yield from repeat(piece, megabytes * MEGABYTE // len(piece))


def generate_long_lines() -> Iterator[bytes]:
    yield b"email,name\n"
    for _ in range(5):
        yield from repeat(b"x" * 100_000, 105)
        yield b"\na@example.com,A\n"


def compress_gzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(0, wbits=31)
    yield from map(packer.compress, pieces)
    yield packer.flush()


def generate_members() -> Iterator[bytes]:
    """Yield the lines of a CSV file of 50 MB. The line of each member has 4 kB."""
    noise = Random(1).randbytes(4000).hex().encode()
    yield b"email,name,note\n"
    for n in range(12_500):
        yield b"m%d@example.com,Name %d,%s\n" % (n, n, noise[n % 4000 : n % 4000 + 4000])


FILE_SHAPES: dict[str, Callable[[], Iterator[bytes]]] = {
    "members in a gzip": lambda: compress_gzip(generate_members()),
    "one line": lambda: generate_file(b"x" * 60_000),
    "lines of 10 MB": generate_long_lines,
    "open quotes": lambda: generate_file(b'a@example.com,"' + (b"x" * 999 + b"\n") * 3000, 15),
    "short lines in an open quote": lambda: iter([b'email,name\na,"' + b"x\n" * 100_000]),
    "no line but quotes": lambda: generate_file(b'"' * 60_001),
    "distinct words": lambda: (
        b"email,status,tier,expiry\n"
        if n == 0
        else b"a@example.com,%d,%d%s,\n" % (n, n, b"x" * 50_000)
        for n in range(1_000)
    ),
    "lines just short enough": lambda: generate_file(LONGEST_LINE + b"\n"),
    "records just short enough": lambda: generate_file(b'"' + LONGEST_LINE[:-80] + b'\n"\n'),
    "json": lambda: repeat(b'{"email": "' + LONGEST_LINE[:-80] + b'"}\n', 50),
    "json of ever new keys": lambda: (
        b'{"email": "a@example.com", "k%d%s": 1}\n' % (n, b"x" * 200_000) for n in range(320)
    ),
}


def measure_peak_bytes(read_file: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read_file()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("shape", FILE_SHAPES)
def test_import_memory_stays_bounded_for_any_file_shape(shape: str) -> None:
    file = GeneratedFile(FILE_SHAPES[shape]())
    row_counts: list[int] = []

    assert (
        measure_peak_bytes(lambda: row_counts.append(sum(1 for _ in open_member_rows(file))))
        < MAX_MEMORY_BYTES
    )
    assert row_counts[0] > 0


def test_decompression_bomb_in_a_single_read_does_not_exceed_the_memory_bound() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * MEGABYTE) for _ in range(60)) + packer.flush()

    def read_bomb() -> None:
        with pytest.raises(DomainError):
            open_member_rows(GeneratedFile(iter([bomb])))

    assert len(bomb) < 64 * 1024
    assert measure_peak_bytes(read_bomb) < MAX_MEMORY_BYTES
