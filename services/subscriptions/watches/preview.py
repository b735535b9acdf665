"""Finds the members who would have entered a segment if it had been watched.

The past values of tags, fields and statuses aren't stored. So a member counts only if a date in the
filter or the member's own creation explains the entry.
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
_NAMES = build_filter_names(())


def build_entry_filter(
    uow: UnitOfWork, mailing_list: MailingList, stored_filter: Mapping[str, Any]
) -> MemberFilter:
    """Return a filter for members who would have entered the segment in the last days, in UTC.

    Members whom an import created don't count, because a watch doesn't report them by default.
    """
    today = clock.now().date()
    days = [today - timedelta(days=number) for number in range(PREVIEW_DAYS + 1)]
    filters = [
        member_filter.read_stored_filter(uow, mailing_list, stored_filter, today=day)
        for day in days
    ]
    nodes = [each.node for each in filters]
    parts = [
        part
        for day, (node, node_of_day_before) in zip(days, pairwise(nodes), strict=False)
        for part in _list_entries(day, node, node_of_day_before)
    ]
    return replace(filters[0], node=Combination(needs_all=False, parts=tuple(parts)))


def _list_entries(day: date, node: Node, node_of_day_before: Node) -> list[Node]:
    """Return the conditions for members who entered on a day."""
    # The cheap comparison is first, because Postgres evaluates the parts in this order.
    is_new = {"all": [_compare_creation("is", day), {"field": "source", "is_not": "import"}]}
    entries: list[Node] = [Combination(needs_all=True, parts=(_parse(is_new), node))]
    if node != node_of_day_before:
        is_old = _parse(_compare_creation("before", day))
        parts = (is_old, node, Negation(node_of_day_before))
        entries.append(Combination(needs_all=True, parts=parts))
    return entries


def _compare_creation(operator: str, day: date) -> dict[str, Any]:
    return {"field": "created_at", operator: day.isoformat()}


def _parse(written: dict[str, Any]) -> Node:
    return grammar.parse_filter(written, _NAMES)
