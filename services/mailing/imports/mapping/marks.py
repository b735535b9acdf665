"""The columns that say whether a member left, and which tier they are on."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from services.mailing.imports.mapping import header_words, products
from services.mailing.imports.mapping.columns import ColumnLayout
from services.mailing.imports.mapping.header_words import is_no
from services.mailing.imports.mapping.rows import SuppressionStatus

_WORST_FIRST = (
    SuppressionStatus.COMPLAINED,
    SuppressionStatus.BOUNCED,
    SuppressionStatus.CLEANED,
    SuppressionStatus.UNSUBSCRIBED,
)
_TIERS = ("free", "silver", "gold")
# Most members of a file have the same few combinations of cells in these columns.
_MAX_CACHED_MARKS = 1024


class MemberMarks(NamedTuple):
    """What these columns say; ``problem`` is the code and reason when the record is no member."""

    suppression: SuppressionStatus = SuppressionStatus.WANTED
    tier: str | None = None
    problem: tuple[str, str] | None = None


_NO_MARKS = MemberMarks()


class MarkReader:
    """Reads the marks of the records of one layout."""

    def __init__(self, layout: ColumnLayout) -> None:
        self._layout = layout
        marks = {*layout.status, *layout.left_at, *layout.subscribed, *layout.deleted}
        self.indexes = sorted(marks.union(layout.tier, layout.paid, layout.active_subscription))
        # The first index twice, so that itemgetter returns a tuple for a single column too.
        self._pick = itemgetter(*self.indexes, self.indexes[0]) if self.indexes else None
        self._cached = lru_cache(_MAX_CACHED_MARKS)(self._marks_of)

    def read(self, cells: Sequence[str]) -> MemberMarks:
        """The marks of a record that has all columns."""
        if self._pick is None:
            return _NO_MARKS
        picked = self._pick(cells)
        # The cache holds short cells alone, so that its size is bounded.
        if max(map(len, picked)) > header_words.MAX_WORD_CHARACTERS:
            return self._marks_of(picked)
        return self._cached(picked)

    def _marks_of(self, picked: tuple[str, ...]) -> MemberMarks:
        layout = self._layout
        cells = dict(zip(self.indexes, picked, strict=False))
        try:
            found = {
                products.suppression_status(layout.product, cells[index]) for index in layout.status
            }
        except products.UnknownStatus as error:
            reason = f"The status {str(error)[:60]!r} is not known."
            return MemberMarks(problem=("row.status_unknown", reason))
        found |= {status for index, status in layout.left_at.items() if not is_no(cells[index])}
        consents = (cells[index].strip() for index in layout.subscribed)
        if any(cell and is_no(cell) for cell in consents):
            found.add(SuppressionStatus.UNSUBSCRIBED)
        is_deleted = any(not is_no(cells[index]) for index in layout.deleted)
        suppression = next((status for status in _WORST_FIRST if status in found), None)
        if suppression is None and (is_deleted or header_words.NOT_SUBSCRIBED in found):
            reason = "The file says that this person is not subscribed."
            return MemberMarks(problem=("row.not_subscribed", reason))
        return MemberMarks(suppression or SuppressionStatus.WANTED, self._tier(cells))

    def _tier(self, cells: Mapping[int, str]) -> str | None:
        layout = self._layout
        found = {"silver" for index in layout.paid if not is_no(cells[index])}
        for index in layout.tier:
            tier = header_words.TIERS.get(header_words.key(cells[index]))
            # Ghost lists the names of paid tiers, which their owner chose.
            if tier is None and layout.product == "ghost" and cells[index].strip():
                tier = "silver"
            found.add(tier or "")
        for index in layout.active_subscription:
            if is_no(cells[index]):
                return "free"
            found.add("silver")
        return max(filter(None, found), key=_TIERS.index, default=None)
