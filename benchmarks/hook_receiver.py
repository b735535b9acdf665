"""``python -m benchmarks.hook_receiver PORT``: takes webhooks at once, and tells what came.

``GET /taken`` answers what came since the last ``DELETE /taken``. It looks at no signature: what it
takes of a core is missing to those who send.
"""

import asyncio
import json
import sys
import time
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from devstack import LOOPBACK

_END_OF_HEAD = b"\r\n\r\n"
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class Taken:
    """
    Attributes:
        posts: how many came.
        events: how many of them were the first of their path and their id.
        seconds: from the first to the last.
        checksum: of all bodies, in whatever order they came.
    """

    posts: int
    events: int
    seconds: float
    checksum: int


def checksum_of(bodies: Iterable[bytes]) -> int:
    return sum(map(zlib.crc32, bodies))


@dataclass
class _Tally:
    posts: int = 0
    seen: set[tuple[bytes, bytes]] = field(default_factory=set)
    first: float = 0.0
    last: float = 0.0
    checksum: int = 0

    def count(self, path: bytes, event_id: bytes, body: bytes) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.posts += 1
        self.seen.add((path, event_id))
        self.checksum += zlib.crc32(body)

    def taken(self) -> Taken:
        return Taken(self.posts, len(self.seen), self.last - self.first, self.checksum)


class _Receiver(asyncio.Protocol):
    """A connection. The tally is in a list, so that a caller can have it begun anew."""

    def __init__(self, tallies: list[_Tally]) -> None:
        self._tallies = tallies
        self._came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (body_from := self._came.find(_END_OF_HEAD) + len(_END_OF_HEAD)) > len(_END_OF_HEAD):
            first, *lines = self._came[:body_from].splitlines()
            headers = dict(_header(line) for line in lines if line)
            ends = body_from + int(headers.get(b"content-length", b"0"))
            if len(self._came) < ends:
                return
            body, self._came = self._came[body_from:ends], self._came[ends:]
            self._transport.write(self._answer(first, headers, body))

    def _answer(self, first: bytes, headers: dict[bytes, bytes], body: bytes) -> bytes:
        method, path, _ = first.split(b" ")
        match method:
            case b"POST":
                self._tallies[-1].count(path, headers[b"webhook-id"], body)
                return _TAKEN
            case b"DELETE":
                self._tallies.append(_Tally())
                return _TAKEN
        told = json.dumps(asdict(self._tallies[-1].taken())).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(told), told)


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()


async def _receive(port: int) -> None:
    tallies = [_Tally()]
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: _Receiver(tallies), LOOPBACK, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_receive(int(sys.argv[1])))
