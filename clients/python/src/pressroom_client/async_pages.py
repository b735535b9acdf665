"""Pages of results of the asynchronous client."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pressroom_client.pages import find_next_changes, is_end

Item = TypeVar("Item")


@dataclass(frozen=True)
class AsyncPage(Generic[Item]):
    """A page of a paginated list.

    Iterating over a page with ``async for`` returns the items of this page and all later pages.

    Attributes:
        items: the items of this page.
        pagination: the pagination object of the API's response.
    """

    items: list[Item]
    pagination: Mapping[str, Any]
    _turn: "Callable[[Mapping[str, Any]], Awaitable[AsyncPage[Item]]]" = field(
        repr=False, compare=False
    )

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page.items:
                yield item

    async def pages(self) -> "AsyncIterator[AsyncPage[Item]]":
        """Yield this page and all later pages."""
        page: AsyncPage[Item] | None = self
        while page is not None:
            yield page
            page = await page.next_page()

    async def next_page(self) -> "AsyncPage[Item] | None":
        """Return the next page, or ``None`` after the last page."""
        changes = find_next_changes(self.items, self.pagination)
        if changes is None:
            return None
        page = await self._turn(changes)
        return None if is_end(page.items, page.pagination, changes) else page


class AsyncPages(Generic[Item]):
    """A paginated list. The client requests the first page when the list is used.

    ``await`` returns the first page, and ``async for`` returns all items.
    """

    def __init__(self, fetch_first: Callable[[], Awaitable[AsyncPage[Item]]]) -> None:
        self._fetch_first = fetch_first

    def __await__(self) -> Generator[Any, None, AsyncPage[Item]]:
        return self._fetch_first().__await__()

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for item in await self:
            yield item

    async def pages(self) -> AsyncIterator[AsyncPage[Item]]:
        """Yield all pages."""
        async for page in (await self).pages():
            yield page
