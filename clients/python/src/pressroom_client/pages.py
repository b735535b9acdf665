"""Pages of a list, and how one goes on to the next."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A page of a list. To iterate over it goes on through the pages after it.

    ``items`` are those of this page alone; ``pagination`` is as the API answered it.
    """

    items: list[Item]
    pagination: Mapping[str, Any]
    _turn: "Callable[[Mapping[str, Any]], Page[Item]]" = field(repr=False, compare=False)

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            yield from page.items

    def pages(self) -> "Iterator[Page[Item]]":
        """This page and those after it."""
        page: Page[Item] | None = self
        while page is not None:
            yield page
            page = page.next_page()

    def next_page(self) -> "Page[Item] | None":
        """The page after this one; ``None`` after the last."""
        if "next_cursor" in self.pagination:
            cursor = self.pagination["next_cursor"]
            if cursor is None:
                return None
            page = self._turn({"cursor": cursor, "offset": None})
            # A page of a search may be empty and lead on. The last of the feed leads to itself.
            is_last = not page.items and page.pagination.get("next_cursor") == cursor
            return None if is_last else page
        if not self.items or len(self.items) < self.pagination["limit"]:
            return None
        return self._turn({"offset": self.pagination["next_offset"]})
