"""Pages of results, with methods that fetch the following pages."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A page of a paginated list.

    Iterating over a page returns the items of this page and all later pages.

    Attributes:
        items: the items of this page.
        pagination: the pagination object of the API's response.
    """

    items: list[Item]
    pagination: Mapping[str, Any]
    _turn: "Callable[[Mapping[str, Any]], Page[Item]]" = field(repr=False, compare=False)

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            yield from page.items

    def pages(self) -> "Iterator[Page[Item]]":
        """Yield this page and all later pages."""
        page: Page[Item] | None = self
        while page is not None:
            yield page
            page = page.next_page()

    def next_page(self) -> "Page[Item] | None":
        """Return the next page, or ``None`` after the last page."""
        if "next_cursor" in self.pagination:
            cursor = self.pagination["next_cursor"]
            if cursor is None:
                return None
            page = self._turn({"cursor": cursor, "offset": None})
            # A page of search results can be empty although a next page exists. The last page of
            # the event feed is empty, and its next cursor is the cursor of the request.
            is_last = not page.items and page.pagination.get("next_cursor") == cursor
            return None if is_last else page
        if not self.items or len(self.items) < self.pagination["limit"]:
            return None
        return self._turn({"offset": self.pagination["next_offset"]})
