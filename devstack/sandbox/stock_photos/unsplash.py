"""Unsplash's search and download endpoints, with pictures that the sandbox draws."""

import base64
import hashlib
from itertools import count
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, Response

from devstack.sandbox.sandbox_settings import UNSPLASH_ACCESS_KEY, UNSPLASH_PREFIX
from devstack.sandbox.stock_photos.faults import FAULTS, Faults, fault
from devstack.sandbox.stock_photos.pictures import HEADERS, colour_of, picture, size_of

QUOTA = 5000
PHOTOS_A_SEARCH = 200
_WIDTHS = {"full": 2400, "regular": 1080, "small": 400, "thumb": 200}
_MADE_AT = "2026-01-01T12:00:00Z"


def make_router(faults: Faults = FAULTS) -> APIRouter:
    router, answers = APIRouter(), count(1)

    def remaining() -> dict[str, str]:
        return _quota(QUOTA - next(answers) % QUOTA)

    @router.get("/search/photos")
    async def search(
        request: Request,
        query: str = "",
        page: Annotated[int, Query(ge=1)] = 1,
        per_page: Annotated[int, Query(ge=1, le=30)] = 10,
        authorization: Annotated[str, Header()] = "",
    ) -> Response:
        if refusal := _refusal(authorization) or await fault(query, faults, _quota(0)):
            return refusal
        first, base = (page - 1) * per_page, _base(request)
        numbers = range(first, min(first + per_page, PHOTOS_A_SEARCH))
        found = {
            "total": PHOTOS_A_SEARCH,
            "total_pages": -(-PHOTOS_A_SEARCH // per_page),
            "results": [_photo(base, query, number) for number in numbers],
        }
        return JSONResponse(found, headers=remaining())

    @router.get("/photos/{photo_id}/download")
    async def download(
        request: Request, photo_id: str, authorization: Annotated[str, Header()] = ""
    ) -> Response:
        if refusal := _refusal(authorization) or await fault(photo_id, faults, _quota(0)):
            return refusal
        url = _picture_url(_base(request), photo_id, w=_WIDTHS["full"])
        return JSONResponse({"url": url}, headers=remaining())

    @router.get("/pictures/{photo_id}.jpg")
    def show(photo_id: str, w: int | None = None) -> Response:
        return Response(picture(photo_id, w), headers=HEADERS)

    return router


def _base(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}{UNSPLASH_PREFIX}"


def _quota(remaining: int) -> dict[str, str]:
    return {"X-Ratelimit-Limit": str(QUOTA), "X-Ratelimit-Remaining": str(remaining)}


def _refusal(authorization: str) -> Response | None:
    if authorization == f"Client-ID {UNSPLASH_ACCESS_KEY}":
        return None
    return JSONResponse({"errors": ["OAuth error: The access token is invalid"]}, 401)


def _photo(base: str, query: str, number: int) -> dict[str, Any]:
    photo_id, ixid = _token(f"{query}/{number}")[:11], _token(f"ixid of {query}/{number}")
    width, height = size_of(photo_id)
    urls = {name: _picture_url(base, photo_id, w=size) for name, size in _WIDTHS.items()}
    own = f"{base}/photos/{photo_id}"
    return {
        "id": photo_id,
        "created_at": _MADE_AT,
        "updated_at": _MADE_AT,
        "width": width,
        "height": height,
        "color": "#{:02x}{:02x}{:02x}".format(*colour_of(photo_id)),
        "description": None,
        "alt_description": f"hills, for the search: {query}",
        "urls": {"raw": _picture_url(base, photo_id), **urls},
        "links": {
            "self": own,
            "html": own,
            "download": f"{own}/download?ixid={ixid}",
            "download_location": f"{own}/download?ixid={ixid}",
        },
        "likes": number,
        "liked_by_user": False,
        "user": {
            "id": "sandbox",
            "username": "sandbox",
            "name": "Pressroom Sandbox",
            "links": {"html": base},
        },
    }


def _picture_url(base: str, photo_id: str, **params: int) -> str:
    query = f"?{urlencode(params)}" if params else ""
    return f"{base}/pictures/{photo_id}.jpg{query}"


def _token(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
