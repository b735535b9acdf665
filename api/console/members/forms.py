"""Parses the query parameters that select the members on a page.

The URL of a page of members contains all search criteria, so that an owner can bookmark or share
the page.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Any, Self
from urllib.parse import urlencode

import orjson
from fastapi import Depends, Request

from api.console.members.filter_form import FilterDraft, parse_filter, read_draft
from api.record_ids import parse_id
from core.errors import DomainError
from core.errors.mailing import FILTER_INVALID
from core.errors.requests import REQUEST_INVALID
from models import MailingList, SubscriptionStatus
from services.subscriptions import segments
from services.subscriptions.filters import member_counts, member_filter
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.filters.sorting import MemberOrder, SortKey
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# The query parameters that select the rows and columns of a table of members.
_INPUT_NAMES = ("q", "segment", "filter", "columns", "sort")
# The query parameters that don't change which members the page shows.
_DISPLAY_NAMES = frozenset({"columns", "sort"})
# Maps the query parameters for common conditions to an attribute and an operator. For example,
# links on the page of tags use these parameters.
_CONDITIONS_BY_PARAMETER = {
    "status": ("status", "is"),
    "type": ("type", "is"),
    "tag": ("tag", "is"),
    "since": ("joined_at", "at_least"),
}
# The maximum number of member fields that can be added to the table of members as columns.
MAX_COLUMNS = 3
MAX_INPUT_CHARACTERS = 4_000
# The default filter, which matches all active members.
ALL_ACTIVE = {"field": "status", "is": SubscriptionStatus.ACTIVE.value}
# Maps an error code to the form field that shows the error.
SELECTION_PLACES = {FILTER_INVALID.code: "filter"}
# The time limit of the query that counts the members for a page. If counting exceeds this time
# limit, the page shows an estimate and a link to an exact count.
MAX_FIRST_COUNT_TIME = timedelta(milliseconds=30)
# The value of the query parameter ``count`` that requests an exact count.
EXACT_COUNT = "exactly"
_SORT_RULE = f"must be one of {', '.join(SortKey)}, with a minus sign for a descending order"
# The maximum number of members that can be ticked in the table of members.
MAX_TICKED_ROWS = 100


@dataclass(frozen=True)
class MemberSelection:
    """The criteria that select the members on a page.

    Attributes:
        typed: maps query parameters to their values, without empty values.
        is_editing: whether the user pressed a button that edits the filter.
    """

    typed: Mapping[str, str]
    draft: FilterDraft = field(default_factory=lambda: FilterDraft(None))
    is_editing: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether the page has no search criterion except the status."""
        if "filter" in self.typed:
            has_only_status = self._find_conditions() == [{"field": "status", "is": self.status}]
        else:
            has_only_status = True
        return has_only_status and not self.criteria.keys() - {"filter"}

    @property
    def status(self) -> str | None:
        """Return the status that the filter requires, or ``None`` for active members."""
        for condition in self._find_conditions():
            match condition:
                case {"field": "status", "is": str(status)}:
                    return status
        return None

    def _find_conditions(self) -> list[Any]:
        """Return the conditions that all selected members meet."""
        text = self.typed.get("filter")
        try:
            filter_json = orjson.loads(text) if text else {"all": []}
        except orjson.JSONDecodeError:
            return [text]
        match filter_json:
            case {"all": [*conditions], **rest} if not rest:
                return conditions
        return [filter_json]

    @property
    def columns(self) -> list[str]:
        return self.typed.get("columns", "").split(",")[:MAX_COLUMNS]

    @property
    def criteria(self) -> dict[str, str]:
        return {name: text for name, text in self.typed.items() if name not in _DISPLAY_NAMES}

    @property
    def order(self) -> MemberOrder | None:
        """Return the order of the members, or ``None`` for the newest members first.

        Raises ``request.invalid`` for an unknown order.
        """
        text = self.typed.get("sort")
        order = MemberOrder.parse(text) if text else None
        if text and order is None:
            raise REQUEST_INVALID(place="query.sort", rule=_SORT_RULE)
        return order

    @property
    def is_segment(self) -> bool:
        """Return whether a segment is the only criterion that selects the members."""
        return self.criteria.keys() == {"segment"}

    @property
    def query(self) -> str:
        return f"?{urlencode(self.typed)}"

    def with_sort(self, sort: str | None) -> Self:
        typed = {name: text for name, text in self.typed.items() if name != "sort"}
        return replace(self, typed=typed | ({"sort": sort} if sort else {}))

    @property
    def segment_id(self) -> int | None:
        return parse_id(self.typed.get("segment", ""))

    def build_filter(self, uow: UnitOfWork, mailing_list: MailingList) -> dict[str, Any] | None:
        """Return a JSON filter that combines all criteria, or ``None`` if there are no criteria."""
        typed = self.typed
        parts: list[dict[str, Any]] = []
        if search_text := typed.get("q"):
            matches = [{"field": name, "contains": search_text} for name in ("email", "name")]
            parts.append({"any": matches})
        if "segment" in typed:
            segment = segments.get_segment(uow, mailing_list.id, self.segment_id or 0)
            parts += member_filter.restore_names(uow, mailing_list, segment.filter)
        if "filter" in typed:
            parts.append(parse_filter(typed["filter"]))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else {"all": parts}


async def _read_selection(request: Request) -> MemberSelection:
    query = request.query_params
    typed = {name: query.get(name, "").strip()[:MAX_INPUT_CHARACTERS] for name in _INPUT_NAMES}
    draft = read_draft(query)
    if draft.group is not None:
        # Links on the page contain the filter as JSON, without incomplete rows.
        filter_json = draft.to_json()
        typed["filter"] = "" if filter_json is None else orjson.dumps(filter_json).decode()
    if columns := query.getlist("column"):
        typed["columns"] = ",".join(columns)[:MAX_INPUT_CHARACTERS]
    if addresses := query.getlist("chosen")[:MAX_TICKED_ROWS]:
        # Select only the ticked members.
        typed["filter"] = orjson.dumps({"field": "email", "in": addresses}).decode()
    conditions = [
        {"field": name, operator: value[:MAX_INPUT_CHARACTERS]}
        for parameter, (name, operator) in _CONDITIONS_BY_PARAMETER.items()
        if (value := query.get(parameter, "").strip())
    ]
    if conditions:
        typed["filter"] = _add_conditions(typed["filter"], conditions)
        draft = FilterDraft(None, typed["filter"])
    present = {name: text for name, text in typed.items() if text}
    return MemberSelection(present, draft, is_editing="do" in query)


def _add_conditions(text: str, conditions: list[dict[str, str]]) -> str:
    """Return the JSON filter ``text`` with more conditions. Invalid text is returned unchanged."""
    try:
        filters = [parse_filter(text)] if text else []
    except DomainError:
        return text
    parts = [*conditions, *(each for each in filters if each not in conditions)]
    return orjson.dumps(parts[0] if len(parts) == 1 else {"all": parts}).decode()


Selection = Annotated[MemberSelection, Depends(_read_selection)]


def iterate_fields(filter_json: object) -> Iterator[str]:
    """Yield the name of the field in each condition of a JSON filter."""
    match filter_json:
        case {"field": str(name)}:
            yield name
        case {"not": inner}:
            yield from iterate_fields(inner)
        case {"all": [*parts]} | {"any": [*parts]}:
            for part in parts:
                yield from iterate_fields(part)


def format_json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


@dataclass(frozen=True)
class MemberCount:
    """The exact or estimated number of members that match a filter.

    ``recount``: the query string of a link to an exact count, or ``None`` if the page shows no
    link.
    """

    count: int
    is_exact: bool
    recount: str | None = None


# The count for an invalid filter, which matches nobody.
NOBODY = MemberCount(0, is_exact=True)


def count_selection(
    resources: Resources,
    mailing_list: MailingList,
    parsed_filter: MemberFilter,
    count: str = "",
    query: Mapping[str, str] = MappingProxyType({}),
    *,
    first_within: timedelta = timedelta(),
) -> MemberCount:
    """Count the members that match a filter, or estimate their number if counting takes too long.

    Counting opens transactions of its own, so the caller must end its transaction first.

    ``count``: ``EXACT_COUNT`` for an exact count, which has a longer time limit.
    ``first_within``: the time limit of another count, if it is longer than
    ``MAX_FIRST_COUNT_TIME``.
    """
    first_time = max(first_within, MAX_FIRST_COUNT_TIME)
    max_time = member_counts.MAX_EXACT_TIME if count == EXACT_COUNT else first_time
    result = member_counts.count_members(resources, mailing_list, parsed_filter, within=max_time)
    may_differ = count != EXACT_COUNT and not result.is_exact
    recount = f"?{urlencode({**query, 'count': EXACT_COUNT})}" if may_differ else None
    return MemberCount(result.count, result.is_exact, recount)
