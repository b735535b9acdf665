import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import repeat
from random import Random

import pytest

from core.errors import DomainError
from services.subscriptions.imports.formats import open_member_rows
from services.subscriptions.imports.line_blocks import MAX_LINE_CHARACTERS

MEGABYTE = 1024 * 1024
BOUND = 32 * MEGABYTE
# Of the characters that take most memory.
WIDEST = "\U0001f600".encode() * MAX_LINE_CHARACTERS


class Generated:
    """A file that exists only while it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while len(self._rest) < size and (piece := next(self._pieces, None)) is not None:
            self._rest += piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def file_of(piece: bytes, megabytes: int = 50) -> Iterator[bytes]:
    yield b"email,name\n"
    yield from repeat(piece, megabytes * MEGABYTE // len(piece))


def long_lines() -> Iterator[bytes]:
    yield b"email,name\n"
    for _ in range(5):
        yield from repeat(b"x" * 100_000, 105)
        yield b"\na@example.com,A\n"


def packed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(0, wbits=31)
    yield from map(packer.compress, pieces)
    yield packer.flush()


def members() -> Iterator[bytes]:
    """Of 4 kB each, since this is about memory and not about time."""
    noise = Random(1).randbytes(4000).hex().encode()
    yield b"email,name,note\n"
    for n in range(12_500):
        yield b"m%d@example.com,Name %d,%s\n" % (n, n, noise[n % 4000 : n % 4000 + 4000])


SHAPES: dict[str, Callable[[], Iterator[bytes]]] = {
    "members in a gzip": lambda: packed(members()),
    "one line": lambda: file_of(b"x" * 60_000),
    "lines of 10 MB": long_lines,
    "open quotes": lambda: file_of(b'a@example.com,"' + (b"x" * 999 + b"\n") * 3000, 15),
    "short lines in an open quote": lambda: iter([b'email,name\na,"' + b"x\n" * 100_000]),
    "no line but quotes": lambda: file_of(b'"' * 60_001),
    "distinct words": lambda: (
        b"email,status,tier,expiry\n"
        if n == 0
        else b"a@example.com,%d,%d%s,\n" % (n, n, b"x" * 50_000)
        for n in range(1_000)
    ),
    "lines just short enough": lambda: file_of(WIDEST + b"\n"),
    "records just short enough": lambda: file_of(b'"' + WIDEST[:-80] + b'\n"\n'),
    "json": lambda: repeat(b'{"email": "' + WIDEST[:-80] + b'"}\n', 50),
    "json of ever new keys": lambda: (
        b'{"email": "a@example.com", "k%d%s": 1}\n' % (n, b"x" * 200_000) for n in range(320)
    ),
}


def peak_of(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_import_memory_stays_bounded_for_any_file_shape(shape: str) -> None:
    file = Generated(SHAPES[shape]())
    seen: list[int] = []

    assert peak_of(lambda: seen.append(sum(1 for _ in open_member_rows(file)))) < BOUND
    assert seen[0] > 0


def test_decompression_bomb_in_a_single_read_does_not_exceed_the_memory_bound() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * MEGABYTE) for _ in range(60)) + packer.flush()

    def read() -> None:
        with pytest.raises(DomainError):
            open_member_rows(Generated(iter([bomb])))

    assert len(bomb) < 64 * 1024
    assert peak_of(read) < BOUND
