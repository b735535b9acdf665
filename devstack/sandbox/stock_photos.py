"""Simulates Unsplash and Openverse with pictures that the sandbox draws.

A word such as ``error-500`` in a search or photo id requests a faulty response.
"""

import asyncio
import base64
import hashlib
import io
import random
import re
import uuid
from collections.abc import Callable, Mapping
from itertools import count
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from devstack.sandbox.sandbox_settings import OPENVERSE_PREFIX, UNSPLASH_ACCESS_KEY, UNSPLASH_PREFIX

_HUGE_BYTES = 6 * 1024 * 1024
# The word ``slow-N`` in a search or photo id delays the response by N seconds.
_SLOW = re.compile(r"\bslow-(\d{1,2})\b")

# Maps the name of each simulated fault to a function that returns the faulty response. The
# function's argument contains HTTP headers that report an exhausted rate limit. A function whose
# response doesn't simulate an exhausted rate limit ignores the headers.
Faults = Mapping[str, Callable[[dict[str, str]], Response]]

FAULTS: Faults = {
    "limit-403": lambda spent: PlainTextResponse("Rate Limit Exceeded", 403, headers=spent),
    "limit-429": lambda spent: JSONResponse(
        {"detail": "throttled"}, 429, {**spent, "Retry-After": "120"}
    ),
    "error-500": lambda _: PlainTextResponse("Internal Server Error", 500),
    "garbage": lambda _: PlainTextResponse("<!doctype html><title>Just a moment</title>"),
    "huge": lambda _: JSONResponse({"results": ["x" * _HUGE_BYTES]}),
    "redirect": lambda _: RedirectResponse("/healthz", 302),
}
_SIZES = ((3000, 2000), (2000, 3000), (2400, 2400), (3000, 1688))
_HILLS = 5
_POINTS_PER_HILL = 9
_JPEG_QUALITY = 85
# Clients may cache a picture, because it never changes.
PICTURE_HEADERS = {
    "Content-Type": "image/jpeg",
    "Cache-Control": "public, max-age=31536000, immutable",
}
UNSPLASH_QUOTA = 5000
UNSPLASH_PHOTOS = 200
_WIDTHS = {"full": 2400, "regular": 1080, "small": 400, "thumb": 200}
MAX_PAGE_PHOTOS = 20
OPENVERSE_PHOTOS = 120
_THUMB_WIDTH = 600
_BURST_QUOTA = 20
_SUSTAINED_QUOTA = 200
_ID_NAMESPACE = uuid.UUID("7d1a3c1e-6f0e-4c53-9a53-0f2f1f3a5b11")


async def build_fault(text: str, faults: Faults, spent: dict[str, str]) -> Response | None:
    if slow := _SLOW.search(text):
        await asyncio.sleep(int(slow[1]))
    named = next((name for name in faults if re.search(rf"\b{name}\b", text)), None)
    return faults[named](spent) if named else None


def choose_size(name: str) -> tuple[int, int]:
    return _create_random(name).choice(_SIZES)


def render_picture(name: str, width: int | None) -> bytes:
    """Return a picture as a JPEG of the requested width, but never wider than the original."""
    full_width, full_height = choose_size(name)
    width = min(max(width or full_width, 1), full_width)
    return draw_picture(name, width, max(round(full_height * width / full_width), 1))


def draw_picture(name: str, width: int, height: int) -> bytes:
    """Draw hills in shades of one colour, and return the picture as JPEG."""
    # Import Pillow only to draw a picture, because Pillow takes megabytes of memory and few
    # sandboxes draw pictures.
    from PIL import Image, ImageDraw

    chance = _create_random(f"colour of {name}")
    red, green, blue = (chance.randint(30, 220) for _ in range(3))
    image = Image.new("RGB", (width, height), (red, green, blue))
    canvas = ImageDraw.Draw(image)
    for number in range(1, _HILLS + 1):
        shade = 1 - number / (_HILLS + 2)
        tone = (int(red * shade), int(green * shade), int(blue * shade))
        chance = _create_random(f"hill {number} of {name}")
        base = number / (_HILLS + 1)
        ridge = [
            (width * point / (_POINTS_PER_HILL - 1), height * (base + chance.uniform(-0.1, 0.1)))
            for point in range(_POINTS_PER_HILL)
        ]
        canvas.polygon([(0, height), *ridge, (width, height)], fill=tone)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=_JPEG_QUALITY)
    return content.getvalue()


def _create_random(name: str) -> random.Random:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return random.Random(seed)  # noqa: S311 - it draws hills


def build_unsplash_router(faults: Faults = FAULTS) -> APIRouter:
    router = APIRouter()
    call_numbers = count(1)

    def use_quota() -> dict[str, str]:
        return _build_unsplash_quota(UNSPLASH_QUOTA - next(call_numbers) % UNSPLASH_QUOTA)

    @router.get("/search/photos")
    async def search(
        request: Request,
        query: str = "",
        page: Annotated[int, Query(ge=1)] = 1,
        per_page: Annotated[int, Query(ge=1, le=30)] = 10,
        authorization: Annotated[str, Header()] = "",
    ) -> Response:
        if error := _check_key(authorization) or await build_fault(
            query, faults, _build_unsplash_quota(0)
        ):
            return error
        first = (page - 1) * per_page
        base = _build_base_url(request, UNSPLASH_PREFIX)
        numbers = range(first, min(first + per_page, UNSPLASH_PHOTOS))
        result = {
            "total": UNSPLASH_PHOTOS,
            "total_pages": -(-UNSPLASH_PHOTOS // per_page),
            "results": [_build_unsplash_photo(base, query, number) for number in numbers],
        }
        return JSONResponse(result, headers=use_quota())

    @router.get("/photos/{photo_id}/download")
    async def download(
        request: Request, photo_id: str, authorization: Annotated[str, Header()] = ""
    ) -> Response:
        if error := _check_key(authorization) or await build_fault(
            photo_id, faults, _build_unsplash_quota(0)
        ):
            return error
        url = _build_picture_url(
            _build_base_url(request, UNSPLASH_PREFIX), photo_id, w=_WIDTHS["full"]
        )
        return JSONResponse({"url": url}, headers=use_quota())

    @router.get("/pictures/{photo_id}.jpg")
    def show(photo_id: str, w: int | None = None) -> Response:
        return Response(render_picture(photo_id, w), headers=PICTURE_HEADERS)

    return router


def _build_base_url(request: Request, prefix: str) -> str:
    return f"{request.url.scheme}://{request.url.netloc}{prefix}"


def _build_unsplash_quota(remaining: int) -> dict[str, str]:
    return {"X-Ratelimit-Limit": str(UNSPLASH_QUOTA), "X-Ratelimit-Remaining": str(remaining)}


def _check_key(authorization: str) -> Response | None:
    if authorization == f"Client-ID {UNSPLASH_ACCESS_KEY}":
        return None
    return JSONResponse({"errors": ["OAuth error: The access token is invalid"]}, 401)


def _build_unsplash_photo(base: str, query: str, number: int) -> dict[str, Any]:
    photo_id = _derive_token(f"{query}/{number}")[:11]
    ixid = _derive_token(f"ixid of {query}/{number}")
    width, height = choose_size(photo_id)
    urls = {name: _build_picture_url(base, photo_id, w=size) for name, size in _WIDTHS.items()}
    page_url = f"{base}/photos/{photo_id}"
    return {
        "id": photo_id,
        "width": width,
        "height": height,
        "description": None,
        "alt_description": f"hills, for the search: {query}",
        "urls": {"raw": _build_picture_url(base, photo_id), **urls},
        "links": {"html": page_url, "download_location": f"{page_url}/download?ixid={ixid}"},
        "user": {"name": "Pressroom Sandbox", "links": {"html": base}},
    }


def _build_picture_url(base: str, photo_id: str, **params: int) -> str:
    query = f"?{urlencode(params)}" if params else ""
    return f"{base}/pictures/{photo_id}.jpg{query}"


def _derive_token(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def build_openverse_router(faults: Faults = FAULTS) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/images/")
    async def search(
        request: Request,
        q: str = "",
        page: Annotated[int, Query(ge=1)] = 1,
        page_size: Annotated[int, Query(ge=1)] = MAX_PAGE_PHOTOS,
    ) -> Response:
        if error := await build_fault(q, faults, _build_openverse_quota(0)):
            return error
        if page_size > MAX_PAGE_PHOTOS:
            return JSONResponse({"detail": "Authentication credentials were not provided."}, 401)
        first = (page - 1) * page_size
        numbers = range(first, min(first + page_size, OPENVERSE_PHOTOS))
        base = _build_base_url(request, OPENVERSE_PREFIX)
        result = {
            "result_count": OPENVERSE_PHOTOS,
            "page_count": -(-OPENVERSE_PHOTOS // page_size),
            "page_size": page_size,
            "page": page,
            "results": [
                _build_openverse_photo(base, uuid.uuid5(_ID_NAMESPACE, f"{q}/{number}"))
                for number in numbers
            ],
        }
        return JSONResponse(result, headers=_build_openverse_quota(_BURST_QUOTA - 1))

    @router.get("/v1/images/{photo_id}/")
    async def detail(request: Request, photo_id: uuid.UUID) -> Response:
        result = _build_openverse_photo(_build_base_url(request, OPENVERSE_PREFIX), photo_id)
        return JSONResponse(result, headers=_build_openverse_quota(_BURST_QUOTA - 2))

    @router.get("/v1/images/{photo_id}/thumb/")
    def show_small(photo_id: uuid.UUID, full_size: bool = False) -> Response:
        width = None if full_size else _THUMB_WIDTH
        return Response(render_picture(str(photo_id), width), headers=PICTURE_HEADERS)

    @router.get("/pictures/{photo_id}.jpg")
    def show(photo_id: uuid.UUID) -> Response:
        return Response(render_picture(str(photo_id), None), headers=PICTURE_HEADERS)

    return router


def _build_openverse_quota(remaining: int) -> dict[str, str]:
    return {
        "X-RateLimit-Limit-anon_burst": f"{_BURST_QUOTA}/min",
        "X-RateLimit-Available-anon_burst": str(remaining),
        "X-RateLimit-Limit-anon_sustained": f"{_SUSTAINED_QUOTA}/day",
        "X-RateLimit-Available-anon_sustained": str(_SUSTAINED_QUOTA - 1),
    }


def _build_openverse_photo(base: str, photo_id: uuid.UUID) -> dict[str, Any]:
    width, height = choose_size(str(photo_id))
    page_url = f"{base}/v1/images/{photo_id}/"
    return {
        "id": str(photo_id),
        "title": "Hills",
        "foreign_landing_url": page_url,
        "url": f"{base}/pictures/{photo_id}.jpg",
        "creator": "Pressroom Sandbox",
        "creator_url": base,
        "license": "cc0",
        "license_version": "1.0",
        "license_url": "https://creativecommons.org/publicdomain/zero/1.0/",
        "attribution": '"Hills" by Pressroom Sandbox is marked with CC0 1.0.',
        "width": width,
        "height": height,
        "thumbnail": f"{page_url}thumb/",
        "detail_url": page_url,
    }
