"""Pages of results, with methods that fetch the following pages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
        changes = find_next_changes(self.items, self.pagination)
        if changes is None:
            return None
        page = self._turn(changes)
        return None if is_end(page.items, page.pagination, changes) else page


def find_next_changes(
    items: Sequence[object], pagination: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the arguments that request the next page, or ``None`` after the last page."""
    if "next_cursor" in pagination:
        cursor = pagination["next_cursor"]
        return None if cursor is None else {"cursor": cursor, "offset": None}
    if not items or len(items) < pagination["limit"]:
        return None
    return {"offset": pagination["next_offset"]}


def is_end(
    items: Sequence[object], pagination: Mapping[str, Any], changes: Mapping[str, Any]
) -> bool:
    """Return whether a page is the empty page at the end of the event feed.

    The last page of the event feed has the cursor of its request. A page of search results can be
    empty although a next page exists.
    """
    cursor = changes.get("cursor")
    return cursor is not None and not items and pagination.get("next_cursor") == cursor


def change_arguments(
    changes: Mapping[str, Any], *, query: Mapping[str, Any], content: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the query and the body that request another page."""
    if "cursor" in query or "offset" in query:
        new_query = {name: changes.get(name, value) for name, value in query.items()}
        return {"query": new_query, "content": content}
    # A search request has the cursor in the body, next to the filter.
    values = {**(content or {}), **changes}
    new_content = {name: value for name, value in values.items() if value is not None}
    return {"query": query, "content": new_content}
