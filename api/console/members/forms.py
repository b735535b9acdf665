"""A selection of members: all of it is in a page's query, to be bookmarked, sent and linked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import Depends, Request

from api.console.members.filter_form import FilterDraft, draft_of_form, read_filter
from api.record_ids import parse_id
from core.errors.mailing import FILTER_INVALID
from models import MailingList, SubscriptionStatus
from services.subscriptions import segments
from services.subscriptions.filters import member_counts, member_filter
from services.subscriptions.filters.member_filter import MemberFilter
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# The inputs of the form, and of links that keep the selection.
_NAMES = ("q", "status", "type", "tag", "since", "segment", "filter", "columns")
# The fields that the table shows beside what it always shows, by their keys.
MAX_COLUMNS = 3
MAX_INPUT_CHARACTERS = 4_000
# The selection of a bulk action where nothing else was chosen.
ALL_ACTIVE = {"field": "status", "is": SubscriptionStatus.ACTIVE.value}
# The input at which an invalid filter is shown.
SELECTION_PLACES = {FILTER_INVALID.code: "filter"}
# The page comes first: a script, or its reader, asks for a count that takes longer.
AT_ONCE = timedelta(milliseconds=30)
EXACTLY = "exactly"
MAX_CHOSEN = 100


@dataclass(frozen=True)
class MemberSelection:
    """The inputs that are not empty, by the names of ``_NAMES``, and the filter as it is edited."""

    typed: Mapping[str, str]
    draft: FilterDraft = field(default_factory=lambda: FilterDraft(None))

    @property
    def is_plain(self) -> bool:
        """Return whether nothing but a status was chosen, of all that chooses members."""
        return not self.typed.keys() - {"status", "columns"}

    @property
    def columns(self) -> list[str]:
        return self.typed.get("columns", "").split(",")[:MAX_COLUMNS]

    @property
    def has_filters(self) -> bool:
        """Return whether more was chosen than words to look for."""
        return bool(self.typed.keys() - {"q", "columns"})

    @property
    def query(self) -> str:
        return f"?{urlencode(self.typed)}"

    @property
    def segment_id(self) -> int | None:
        return parse_id(self.typed.get("segment", ""))

    def written(self, uow: UnitOfWork, mailing_list: MailingList) -> dict[str, Any] | None:
        """Return the filter as JSON; ``None`` where nothing was chosen.

        Raises ``filter.invalid`` for a text that is no JSON, and ``segment.not_found``.
        """
        typed = self.typed
        parts: list[dict[str, Any]] = []
        if words := typed.get("q"):
            either = [{"field": name, "contains": words} for name in ("email", "name")]
            parts.append({"any": either})
        chosen = ("status", "type", "tag")
        parts += [{"field": name, "is": typed[name]} for name in chosen if name in typed]
        if since := typed.get("since"):
            parts.append({"field": "joined_at", "at_least": since})
        if "segment" in typed:
            segment = segments.get_segment(uow, mailing_list.id, self.segment_id or 0)
            parts += member_filter.shown(uow, mailing_list, segment.filter)
        if "filter" in typed:
            parts.append(read_filter(typed["filter"]))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else {"all": parts}


async def _selection(request: Request) -> MemberSelection:
    query = request.query_params
    typed = {name: query.get(name, "").strip()[:MAX_INPUT_CHARACTERS] for name in _NAMES}
    draft = draft_of_form(query)
    if draft.group is not None:
        # Links of the page have the filter as JSON, without the rows that lack a value.
        written = draft.written()
        typed["filter"] = "" if written is None else orjson.dumps(written).decode()
    if columns := query.getlist("column"):
        typed["columns"] = ",".join(columns)[:MAX_INPUT_CHARACTERS]
    if chosen := query.getlist("chosen")[:MAX_CHOSEN]:
        # The rows of a table that were ticked.
        typed["filter"] = orjson.dumps({"field": "email", "in": chosen}).decode()
    return MemberSelection({name: text for name, text in typed.items() if text}, draft)


SelectionOf = Annotated[MemberSelection, Depends(_selection)]


def as_json(written: object) -> str:
    return orjson.dumps(written, option=orjson.OPT_INDENT_2).decode()


@dataclass(frozen=True)
class MemberCount:
    """The number of the members who fit a filter.

    Attributes:
        recount: the query of the page that counts for longer, if that may give another number.
    """

    count: int
    is_exact: bool
    recount: str | None = None


# The count for a filter that is invalid.
NOBODY = MemberCount(0, is_exact=True)


def shown_count(
    resources: Resources,
    mailing_list: MailingList,
    wanted: MemberFilter,
    asked: str,
    query: Mapping[str, str],
) -> MemberCount:
    """Count the members at once, as far as that goes.

    Args:
        asked: ``EXACTLY``, where the page was asked to count for longer.
        query: the inputs that chose the members on this page.
    """
    within = member_counts.MAX_EXACT_TIME if asked == EXACTLY else AT_ONCE
    counted = member_counts.count_members(resources, mailing_list, wanted, within=within)
    may_differ = asked != EXACTLY and not counted.is_exact
    recount = f"?{urlencode({**query, 'count': EXACTLY})}" if may_differ else None
    return MemberCount(counted.count, counted.is_exact, recount)
