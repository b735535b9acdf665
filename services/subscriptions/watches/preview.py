"""Finds the members who would have entered a segment if it had been watched.

The past values of tags, fields and statuses aren't stored. The preview therefore counts only new
members, and members who entered because of a date in the filter.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from core import clock
from models import MailingList
from services.subscriptions.filters import grammar, member_filter
from services.subscriptions.filters.grammar import Combination, Negation, Node
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.filters.names import build_filter_names
from storage.unit_of_work import UnitOfWork

PREVIEW_DAYS = 7
# Larger filters with dates have no preview, because the query repeats the filter for each day.
_MAX_VALUES = 50
_NAMES = build_filter_names(())


def build_entry_filter(
    uow: UnitOfWork, mailing_list: MailingList, stored_filter: Mapping[str, Any]
) -> MemberFilter | None:
    """Return a filter for members who would have entered the segment in the last days, in UTC.

    Imported members don't count, because a watch doesn't report them by default. The
    result is ``None`` if the segment's filter is too large.
    """
    today = clock.now().date()
    days = [today - timedelta(days=number) for number in range(PREVIEW_DAYS + 1)]
    filters = [
        member_filter.read_stored_filter(uow, mailing_list, stored_filter, today=day)
        for day in days
    ]
    nodes = [each.node for each in filters]
    has_dates = nodes[0] != nodes[1]
    if has_dates and sum(len(each.values) for each in nodes[0].comparisons()) > _MAX_VALUES:
        return None
    # The cheap comparisons are first, because Postgres evaluates the parts in this order.
    is_new = _compare_creation("at_least", days[PREVIEW_DAYS - 1])
    is_added = _parse({"field": "source", "is_not": "import"})
    parts = [_combine(is_new, is_added, nodes[0])]
    for day, (node, node_of_day_before) in zip(days, pairwise(nodes), strict=False):
        if has_dates:
            is_old = _compare_creation("before", day)
            parts.append(_combine(is_old, node, Negation(node_of_day_before)))
    return replace(filters[0], node=Combination(needs_all=False, parts=tuple(parts)))


def _combine(*parts: Node) -> Node:
    return Combination(needs_all=True, parts=parts)


def _compare_creation(operator: str, day: date) -> Node:
    return _parse({"field": "created_at", operator: day.isoformat()})


def _parse(written: dict[str, Any]) -> Node:
    return grammar.parse_filter(written, _NAMES)
