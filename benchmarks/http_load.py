"""Many callers at once from one thread: HTTP/1.1 over kept-alive connections, nothing more."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from itertools import repeat


async def _read_reply(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    await reader.readexactly(length)
    return status


def request_bytes(method: str, path: str, key: str | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 0"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode()


def json_request(method: str, path: str, key: str, body: bytes) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Authorization: Bearer {key}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _caller(port: int, requests: Iterable[bytes]) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    try:
        for request in requests:
            began = time.perf_counter()
            writer.write(request)
            status = await _read_reply(reader)
            times.append(time.perf_counter() - began)
            assert status == 200, f"answered {status}"
    finally:
        writer.close()
    return times


async def callers(port: int, request: bytes, *, count: int, calls: int) -> list[float]:
    """Seconds of each reply, of `count` callers at once that make `calls` calls each in turn."""
    return await each_caller(port, (repeat(request, calls) for _ in range(count)))


async def each_caller(port: int, shares: Iterable[Iterable[bytes]]) -> list[float]:
    """Seconds of each reply, of a caller for each share that makes its own requests in turn."""
    found: Sequence[list[float]] = await asyncio.gather(*(_caller(port, each) for each in shares))
    return [seconds for times in found for seconds in times]
