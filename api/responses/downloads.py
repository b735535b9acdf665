"""Builds responses that stream a file."""

from collections.abc import Iterator
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import StreamingResponse

from api.client_details import client_address
from api.limits.bulkhead import Bulkhead
from api.middleware.request_rewriting import is_head
from api.waiting.slow_downloads import SlowDownloads

_SLOW_DOWNLOADS = SlowDownloads()


def stream_file(
    request: Request,
    bulkhead: Bulkhead,
    content: Iterator[bytes],
    headers: dict[str, str],
    media_type: str,
    *,
    status: int = HTTPStatus.OK,
) -> StreamingResponse:
    """Read the file in threads of ``bulkhead``, so that slow reads don't delay other requests."""
    pieces = bulkhead.iterate(iter(()) if is_head(request.scope) else content)
    limited_pieces = _SLOW_DOWNLOADS.limit(client_address(request), pieces)
    return StreamingResponse(limited_pieces, status, headers, media_type)


def build_download_headers(filename: str) -> dict[str, str]:
    return {
        "Content-Disposition": f'attachment; filename="{filename}"',
        "Cache-Control": "private, no-store",
        "X-Content-Type-Options": "nosniff",
    }
