"""Many callers at once from one thread: HTTP/1.1 over kept-alive connections, nothing more."""

import asyncio
import time
from collections.abc import Sequence


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


async def _caller(port: int, request: bytes, calls: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    try:
        for _ in range(calls):
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
    found: Sequence[list[float]] = await asyncio.gather(
        *(_caller(port, request, calls) for _ in range(count))
    )
    return [seconds for times in found for seconds in times]
