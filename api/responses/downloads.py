"""Responses that stream a file."""

from collections.abc import Iterator
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import StreamingResponse

from api.browsers import client_address
from api.limits.bulkheads import Bulkhead
from api.middleware.headers import is_head
from api.waiting.streams import SLOW_DOWNLOADS


def streamed(
    request: Request,
    bulkhead: Bulkhead,
    content: Iterator[bytes],
    headers: dict[str, str],
    media_type: str,
    *,
    status: int = HTTPStatus.OK,
) -> StreamingResponse:
    """Answer pieces that are made in threads of the bulkhead; none of them to a HEAD."""
    pieces = bulkhead.iterate(iter(()) if is_head(request.scope) else content)
    watched = SLOW_DOWNLOADS.watched(client_address(request), pieces)
    return StreamingResponse(watched, status, headers, media_type)


def download_headers(filename: str) -> dict[str, str]:
    return {
        "Content-Disposition": f'attachment; filename="{filename}"',
        "Cache-Control": "private, no-store",
        "X-Content-Type-Options": "nosniff",
    }
