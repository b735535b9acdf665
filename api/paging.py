"""Parameters that request a page of records, and the link to the next page."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from core import ids
from services.paging import WHOLE, PageOfRows, PageRequest

MAX_PAGE_ITEMS = 1000
Offset = Annotated[int, Query(ge=0, le=ids.MAX_ID, description="How many to skip, newest first")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE_ITEMS, description="How many to answer at most")]
Cursor = Annotated[
    str | None, Query(description="next_cursor of the page before, instead of an offset")
]
ArrayCursor = Annotated[
    str | None, Query(description="That of the link to the next page, in the header Link")
]


async def _page_request(
    offset: Offset = 0, limit: Limit = 50, cursor: Cursor = None
) -> PageRequest:
    return PageRequest(limit, offset, cursor)


Paging = Annotated[PageRequest, Depends(_page_request)]


async def _array_request(limit: Limit = WHOLE.limit, cursor: ArrayCursor = None) -> PageRequest:
    return PageRequest(limit, cursor=cursor)


# The page of a list whose answer is a bare array.
ArrayPaging = Annotated[PageRequest, Depends(_array_request)]


def link_next(request: Request, response: Response, shown: PageOfRows[Any]) -> None:
    """Let the header ``Link`` (RFC 8288) lead to the next page of a bare array, if there is one."""
    if shown.next_cursor is not None:
        query = urlencode({**request.query_params, "cursor": shown.next_cursor})
        response.headers["Link"] = f'<?{query}>; rel="next"'
