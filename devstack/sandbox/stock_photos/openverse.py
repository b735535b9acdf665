"""Openverse's search and detail endpoints, as a caller without an account sees them."""

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from devstack.sandbox.sandbox_settings import OPENVERSE_PREFIX
from devstack.sandbox.stock_photos.faults import FAULTS, Faults, fault
from devstack.sandbox.stock_photos.pictures import HEADERS, picture, size_of

MAX_PAGE_PHOTOS = 20
PHOTOS_A_SEARCH = 120
_THUMB_WIDTH = 600
_BURST, _SUSTAINED = 20, 200
_NAMES = uuid.UUID("7d1a3c1e-6f0e-4c53-9a53-0f2f1f3a5b11")


def make_router(faults: Faults = FAULTS) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/images/")
    async def search(
        request: Request,
        q: str = "",
        page: Annotated[int, Query(ge=1)] = 1,
        page_size: Annotated[int, Query(ge=1)] = MAX_PAGE_PHOTOS,
    ) -> Response:
        if refusal := await fault(q, faults, _quota(0)):
            return refusal
        if page_size > MAX_PAGE_PHOTOS:
            return JSONResponse({"detail": "Authentication credentials were not provided."}, 401)
        first = (page - 1) * page_size
        numbers = range(first, min(first + page_size, PHOTOS_A_SEARCH))
        base = _base(request)
        found = {
            "result_count": PHOTOS_A_SEARCH,
            "page_count": -(-PHOTOS_A_SEARCH // page_size),
            "page_size": page_size,
            "page": page,
            "results": [_photo(base, uuid.uuid5(_NAMES, f"{q}/{number}")) for number in numbers],
        }
        return JSONResponse(found, headers=_quota(_BURST - 1))

    @router.get("/v1/images/{photo_id}/")
    async def detail(request: Request, photo_id: uuid.UUID) -> Response:
        return JSONResponse(_photo(_base(request), photo_id), headers=_quota(_BURST - 2))

    @router.get("/v1/images/{photo_id}/thumb/")
    def show_small(photo_id: uuid.UUID) -> Response:
        return Response(picture(str(photo_id), _THUMB_WIDTH), headers=HEADERS)

    @router.get("/pictures/{photo_id}.jpg")
    def show(photo_id: uuid.UUID) -> Response:
        return Response(picture(str(photo_id), None), headers=HEADERS)

    return router


def _base(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}{OPENVERSE_PREFIX}"


def _quota(remaining: int) -> dict[str, str]:
    return {
        "X-RateLimit-Limit-anon_burst": f"{_BURST}/min",
        "X-RateLimit-Available-anon_burst": str(remaining),
        "X-RateLimit-Limit-anon_sustained": f"{_SUSTAINED}/day",
        "X-RateLimit-Available-anon_sustained": str(_SUSTAINED - 1),
    }


def _photo(base: str, photo_id: uuid.UUID) -> dict[str, Any]:
    width, height = size_of(str(photo_id))
    own = f"{base}/v1/images/{photo_id}/"
    return {
        "id": str(photo_id),
        "title": "Hills",
        "foreign_landing_url": own,
        "url": f"{base}/pictures/{photo_id}.jpg",
        "creator": "Pressroom Sandbox",
        "creator_url": base,
        "license": "cc0",
        "license_version": "1.0",
        "license_url": "https://creativecommons.org/publicdomain/zero/1.0/",
        "provider": "sandbox",
        "source": "sandbox",
        "filetype": "jpg",
        "attribution": '"Hills" by Pressroom Sandbox is marked with CC0 1.0.',
        "width": width,
        "height": height,
        "thumbnail": f"{own}thumb/",
        "detail_url": own,
        "related_url": f"{own}related/",
    }
