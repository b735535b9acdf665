"""A minimal HTTP/1.1 client that simulates many concurrent callers in one thread."""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Reply:
    """The status of a response, and its response time.

    Attributes:
        status: 0 if the API closed the connection without a response.
        seconds: the time from the planned start of the request to the end of the response.
        error_code: the code in an error response, such as ``queue.overloaded``. Empty otherwise.
    """

    status: int
    seconds: float
    error_code: str = ""


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


async def offer_requests(port: int, requests: Iterable[bytes], *, per_second: float) -> list[Reply]:
    """Send requests at a fixed rate, without waiting for the responses to earlier requests.

    The response time of a request is measured from the time at which the request was planned to be
    sent. If a request is sent late because the server is slow, the response time includes this
    delay.

    Args:
        requests: the requests in the order in which they are sent. An iterator builds each request
            just before its planned time, so that signed requests don't expire.
    """
    start = time.perf_counter()
    idle: list[_Connection] = []

    async def connect() -> _Connection:
        while idle:
            reader, writer = idle.pop()
            # The API closes connections that are idle for a while.
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", port)

    async def send(request: bytes, planned_at: float) -> Reply:
        reader, writer = connection = await connect()
        try:
            writer.write(request)
            status, body = await _read_response(reader)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
            return Reply(0, time.perf_counter() - planned_at)
        seconds = time.perf_counter() - planned_at
        idle.append(connection)
        return Reply(status, seconds, _read_error_code(body) if status >= 400 else "")

    tasks: list[asyncio.Task[Reply]] = []
    try:
        for number, request in enumerate(requests):
            planned_at = start + number / per_second
            await asyncio.sleep(planned_at - time.perf_counter())
            tasks.append(asyncio.create_task(send(request, planned_at)))
        return await asyncio.gather(*tasks)
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
            status, _ = await _read_response(reader)
            times.append(time.perf_counter() - start)
            assert status == 200, f"answered {status}"
    finally:
        writer.close()
    return times


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read an HTTP response, and return its status and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return status, await reader.readexactly(length)


def _read_error_code(body: bytes) -> str:
    code: str = json.loads(body)["code"]
    return code
