import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import repeat
from random import Random

import pytest

from services.imports.reading import open_rows

MEGABYTE = 1024 * 1024
BOUND = 32 * MEGABYTE


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


def packed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    yield from map(packer.compress, pieces)
    yield packer.flush()


def members() -> Iterator[bytes]:
    """Of 4 kB each, since this is about memory and not about time."""
    random = Random(1)
    yield b"email,name,note\n"
    for n in range(12_500):
        yield b"m%d@example.com,Name %d,%s\n" % (n, n, random.randbytes(2000).hex().encode())


SHAPES: dict[str, Callable[[], Iterator[bytes]]] = {
    "members": members,
    "gzip": lambda: packed(members()),
    "one line": lambda: file_of(b"x" * 60_000),
    "lines of 10 MB": lambda: file_of(b"x" * 10 * MEGABYTE + b"\na@example.com,A\n"),
    "open quotes": lambda: file_of(b'a@example.com,"' + (b"x" * 999 + b"\n") * 3000),
    "short lines in an open quote": lambda: iter([b'email,name\na,"' + b"x\n" * 100_000]),
    "no line but quotes": lambda: file_of(b'"' * 60_001),
    "distinct words": lambda: (
        b"email,status,tier,expiry\n"
        if n == 0
        else b"a@example.com,%d,%d%s,\n" % (n, n, b"x" * 900)
        for n in range(5_000)
    ),
    "json": lambda: repeat(b'{"email": "' + b"x" * 900_000 + b'"}\n', 55),
    "json of ever new keys": lambda: (
        b'{"email": "a@example.com", "k%d%s": 1}\n' % (n, b"x" * 9000) for n in range(1500)
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_memory_stays_bounded_whatever_the_file(shape: str) -> None:
    tracemalloc.start()
    try:
        seen = sum(1 for _ in open_rows(Generated(SHAPES[shape]())))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert seen > 0
    assert peak < BOUND
