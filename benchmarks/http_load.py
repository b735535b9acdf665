"""A minimal HTTP/1.1 client that simulates many concurrent callers in one thread."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Reply:
    """The status of a response, and its response time.

    Attributes:
        seconds: the time from the planned start of the request to the end of the response.
    """

    status: int
    seconds: float


def build_request(method: str, path: str, key: str | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 0"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode()


def build_json_request(method: str, path: str, key: str, body: bytes) -> bytes:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    return build_body_request(method, path, body, headers)


def build_body_request(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def run_callers(port: int, request: bytes, *, count: int, calls: int) -> list[float]:
    """Send a request repeatedly from concurrent callers, and return the response times in seconds.

    Args:
        count: the number of callers that send requests at the same time.
        calls: the number of requests that each caller sends in sequence.
    """
    return await send_requests(port, (repeat(request, calls) for _ in range(count)))


async def send_requests(port: int, shares: Iterable[Iterable[bytes]]) -> list[float]:
    """Send requests from concurrent callers, and return the response times in seconds.

    Args:
        shares: one sequence of requests for each caller, which the caller sends in order.
    """
    results: Sequence[list[float]] = await asyncio.gather(
        *(_run_caller(port, requests) for requests in shares)
    )
    return [seconds for times in results for seconds in times]


async def offer_requests(port: int, requests: Sequence[bytes], *, per_second: float) -> list[Reply]:
    """Send requests at a fixed rate, without waiting for the responses to earlier requests.

    Response times count from the planned time of sending. If requests are delayed because the
    server is slow, the delay is therefore included.
    """
    start = time.perf_counter()
    idle: list[_Connection] = []

    async def offer(number: int, request: bytes) -> Reply:
        planned_at = start + number / per_second
        await asyncio.sleep(planned_at - time.perf_counter())
        connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connection
        writer.write(request)
        status = await _read_response(reader)
        seconds = time.perf_counter() - planned_at
        idle.append(connection)
        return Reply(status, seconds)

    try:
        offers = (offer(number, request) for number, request in enumerate(requests))
        return await asyncio.gather(*offers)
    finally:
        for _, writer in idle:
            writer.close()


async def _run_caller(port: int, requests: Iterable[bytes]) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    try:
        for request in requests:
            start = time.perf_counter()
            writer.write(request)
            status = await _read_response(reader)
            times.append(time.perf_counter() - start)
            assert status == 200, f"answered {status}"
    finally:
        writer.close()
    return times


async def _read_response(reader: asyncio.StreamReader) -> int:
    """Read an HTTP response, and return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    await reader.readexactly(length)
    return status
