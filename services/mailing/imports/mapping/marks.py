"""What the columns beside address and name say of a member: whether they left, what they pay."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from services.mailing.imports.mapping import header_words, products
from services.mailing.imports.mapping.columns import ColumnLayout
from services.mailing.imports.mapping.rows import SuppressionStatus

_WORST_FIRST = (
    SuppressionStatus.COMPLAINED,
    SuppressionStatus.BOUNCED,
    SuppressionStatus.CLEANED,
    SuppressionStatus.UNSUBSCRIBED,
)
_TIERS = ("free", "silver", "gold")
# Most members of a file have the same few marks.
_MAX_CACHED_MARKS = 1024


class MemberMarks(NamedTuple):
    """``problem`` is the code and reason of why the record is no member, if it is none."""

    standing: SuppressionStatus = SuppressionStatus.WANTED
    tier: str | None = None
    problem: tuple[str, str] | None = None


_NOTHING_SAID = MemberMarks()


class MarkReader:
    def __init__(self, layout: ColumnLayout) -> None:
        self._layout = layout
        left_at = [index for index, _ in layout.left_at]
        active = [] if layout.active_subscription is None else [layout.active_subscription]
        marks = {*layout.status, *left_at, *layout.subscribed, *layout.deleted}
        self.indexes = sorted({*marks, *layout.tier, *layout.paid, *active})
        # The first one twice, so that a single one comes as a tuple as well.
        self._pick = itemgetter(*self.indexes, self.indexes[0]) if self.indexes else None
        self._remembered = lru_cache(_MAX_CACHED_MARKS)(self._judged)

    def verdict(self, cells: Sequence[str]) -> MemberMarks:
        """Of a record that has all columns."""
        if self._pick is None:
            return _NOTHING_SAID
        marked = self._pick(cells)
        if max(map(len, marked)) > header_words.MAX_WORD_CHARACTERS:
            return self._judged(marked)
        return self._remembered(marked)

    def _judged(self, marked: tuple[str, ...]) -> MemberMarks:
        cells = dict(zip(self.indexes, marked, strict=False))
        try:
            said = self._said(cells)
        except products.UnknownStatus as error:
            reason = f"The status {str(error)[:60]!r} is not known."
            return MemberMarks(problem=("row.status_unknown", reason))
        for standing in _WORST_FIRST:
            if standing in said:
                return MemberMarks(standing, self._tier(cells))
        if header_words.NOT_SUBSCRIBED in said:
            reason = "The file says that this person is not subscribed."
            return MemberMarks(problem=("row.not_subscribed", reason))
        return MemberMarks(SuppressionStatus.WANTED, self._tier(cells))

    def _said(self, cells: Mapping[int, str]) -> set[SuppressionStatus | None]:
        layout = self._layout
        said = {
            products.suppression_status(layout.product, cells[index]) for index in layout.status
        }
        said |= {
            standing for index, standing in layout.left_at if not header_words.is_no(cells[index])
        }
        consents = (cells[index].strip() for index in layout.subscribed)
        if any(cell and header_words.is_no(cell) for cell in consents):
            said.add(SuppressionStatus.UNSUBSCRIBED)
        if any(not header_words.is_no(cells[index]) for index in layout.deleted):
            said.add(header_words.NOT_SUBSCRIBED)
        return said

    def _tier(self, cells: Mapping[int, str]) -> str | None:
        layout = self._layout
        found = {self._tier_word(cells[index]) for index in layout.tier}
        found |= {"silver" for index in layout.paid if not header_words.is_no(cells[index])}
        if layout.active_subscription is not None:
            if header_words.is_no(cells[layout.active_subscription]):
                return "free"
            found.add("silver")
        return max(filter(None, found), key=_TIERS.index, default=None)

    def _tier_word(self, cell: str) -> str | None:
        found = header_words.TIERS.get(header_words.key(cell))
        # Ghost lists the names of paid tiers, whatever the owner called them.
        is_named = self._layout.product == "ghost" and bool(cell.strip())
        return "silver" if found is None and is_named else found
