"""Sends many HTTP requests at the same moment, each on a connection of its own."""

import asyncio
import json
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from devstack.harness.stack import Stack

_OPEN_AT_ONCE = 200


@dataclass(frozen=True)
class BurstReply:
    """A response to a request of a burst. The names of the headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


def build_request(operation: str, *headers: str, body: bytes = b"") -> bytes:
    """Build a request. ``operation``: the method and the path."""
    lines = [f"{operation} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def send_at_once(stack: Stack, requests: Sequence[bytes]) -> list[BurstReply]:
    """Open a connection for each request, send all requests, and return their responses.

    No request is repeated.
    """
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    try:
        return asyncio.run(_send_at_once(urlsplit(stack.api_url).port or 80, requests))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))


async def _send_at_once(port: int, requests: Sequence[bytes]) -> list[BurstReply]:
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for start in range(0, len(requests), _OPEN_AT_ONCE):
        count = len(requests[start : start + _OPEN_AT_ONCE])
        connections += await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", port) for _ in range(count))
        )
    try:
        for (_, writer), request in zip(connections, requests, strict=True):
            writer.write(request)
        return await asyncio.gather(*(_read_reply(reader) for reader, _ in connections))
    finally:
        for _, writer in connections:
            writer.close()


async def _read_reply(reader: asyncio.StreamReader) -> BurstReply:
    first_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return BurstReply(int(first_line.split()[1]), headers, body)
