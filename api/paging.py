"""Reads the paging parameters of a request, and adds a link to the next page to the response."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from core import ids
from services.paging import UNPAGED, PageOfRows, PageRequest

MAX_PAGE_ITEMS = 1000

Offset = Annotated[
    int, Query(ge=0, le=ids.MAX_ID, description="The number of items to skip, newest first")
]
Limit = Annotated[
    int, Query(ge=1, le=MAX_PAGE_ITEMS, description="The maximum number of items to return")
]
Cursor = Annotated[
    str | None,
    Query(description="The `next_cursor` of the previous page. Overrides an offset."),
]
ArrayCursor = Annotated[
    str | None,
    Query(
        description="The cursor of the next page, from the `Link` header of the previous response"
    ),
]


async def _read_page_request(
    offset: Offset = 0, limit: Limit = 50, cursor: Cursor = None
) -> PageRequest:
    return PageRequest(limit, offset, cursor)


Paging = Annotated[PageRequest, Depends(_read_page_request)]


async def _read_array_page_request(
    limit: Limit = UNPAGED.limit, cursor: ArrayCursor = None
) -> PageRequest:
    return PageRequest(limit, cursor=cursor)


# The paging parameters of routes that return a bare array. The ``Link`` header contains the URL of
# the next page, because a bare array has no room for it.
ArrayPaging = Annotated[PageRequest, Depends(_read_array_page_request)]


def link_next_page(request: Request, response: Response, page: PageOfRows[Any]) -> None:
    """Add the response header ``Link`` (RFC 8288) if there is a next page."""
    if page.next_cursor is not None:
        query = urlencode({**request.query_params, "cursor": page.next_cursor})
        response.headers["Link"] = f'<?{query}>; rel="next"'
