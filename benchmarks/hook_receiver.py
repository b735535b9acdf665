"""The program ``python -m benchmarks.hook_receiver PORT``, which receives webhooks in a benchmark.

``GET /taken`` returns statistics about the webhooks since the last ``DELETE /taken``. The receiver
doesn't verify signatures, so that the sending processes get more CPU time.
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
    """Statistics about received webhooks.

    Attributes:
        posts: the number of received POST requests.
        events: the number of distinct pairs of path and event id in the POST requests.
        seconds: the time in seconds between the first and the last POST request.
        checksum: a checksum of all request bodies, independent of their order.
    """

    posts: int
    events: int
    seconds: float
    checksum: int


def calculate_checksum(bodies: Iterable[bytes]) -> int:
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
    """A connection on which the program receives webhooks.

    All connections count received webhooks with the same counter. ``DELETE /taken`` replaces the
    counter with a new one.
    """

    def __init__(self, tallies: list[_Tally]) -> None:
        self._tallies = tallies
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end_of_head := self._received.find(_END_OF_HEAD)) >= 0:
            body_start = end_of_head + len(_END_OF_HEAD)
            request_line, *lines = self._received[:body_start].splitlines()
            headers = dict(_parse_header(line) for line in lines if line)
            body_end = body_start + int(headers.get(b"content-length", b"0"))
            if len(self._received) < body_end:
                return
            body = self._received[body_start:body_end]
            self._received = self._received[body_end:]
            self._transport.write(self._respond(request_line, headers, body))

    def _respond(self, request_line: bytes, headers: dict[bytes, bytes], body: bytes) -> bytes:
        method, path, _ = request_line.split(b" ")
        match method:
            case b"POST":
                self._tallies[-1].count(path, headers[b"webhook-id"], body)
                return _TAKEN
            case b"DELETE":
                self._tallies.append(_Tally())
                return _TAKEN
        tally = json.dumps(asdict(self._tallies[-1].taken())).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(tally), tally)


def _parse_header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()


async def _receive(port: int) -> None:
    tallies = [_Tally()]
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: _Receiver(tallies), LOOPBACK, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_receive(int(sys.argv[1])))
