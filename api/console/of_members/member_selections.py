"""Which members a person looks for: the simple form and the filter as JSON, as one filter.

The query of a page has it all, so that it can be kept, sent to a colleague and led on by links.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import Depends, Request

from core.refusals.mailing import FILTER_INVALID, FILTER_NOT_JSON
from models import MailingList, SubscriptionStatus
from services.mailing.filters.member_filter import MemberFilter
from services.mailing.filters.member_filter import read as read_filter
from services.mailing.segments import saved, stored_filters
from storage.unit_of_work import UnitOfWork

# The inputs of the form, and of links that lead on.
SIMPLE = ("q", "status", "type", "tag", "since")
_NAMES = (*SIMPLE, "segment", "filter")
MAX_INPUT_CHARACTERS = 4_000
# Whom a bulk act is about where nothing else was chosen.
ALL_ACTIVE = {"field": "status", "is": SubscriptionStatus.ACTIVE.value}
# Beside which input a refused filter stands.
PLACES = {FILTER_INVALID.code: "filter"}


@dataclass(frozen=True)
class MemberSelection:
    """What was typed, by the names of ``_NAMES``; what is empty is left out."""

    typed: Mapping[str, str]

    @property
    def is_plain(self) -> bool:
        """Whether nothing but a status was chosen."""
        return not self.typed.keys() - {"status"}

    @property
    def query(self) -> str:
        """The query by which a link leads on."""
        return f"?{urlencode(self.typed)}"

    @property
    def segment_id(self) -> int | None:
        name = self.typed.get("segment", "")
        return int(name) if name.isascii() and name.isdigit() and len(name) < _MAX_DIGITS else None

    @property
    def typed_filter(self) -> dict[str, Any]:
        """What was typed as JSON; raises ``filter.invalid`` for a text that is none."""
        return _read(self.typed["filter"])

    def written(self, uow: UnitOfWork, mailing_list: MailingList) -> dict[str, Any] | None:
        """The filter as JSON; ``None`` where nothing was chosen.

        Raises ``filter.invalid`` for a text that is none, ``segment.not_found``.
        """
        parts = [*_simple_parts(self.typed)]
        if "segment" in self.typed:
            segment = saved.get(uow, mailing_list.id, self.segment_id or 0)
            parts += stored_filters.shown(uow, mailing_list, segment.filter)
        if "filter" in self.typed:
            parts.append(self.typed_filter)
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else {"all": parts}

    def read(self, uow: UnitOfWork, mailing_list: MailingList) -> MemberFilter | None:
        """Raises ``filter.invalid``, ``segment.not_found``."""
        written = self.written(uow, mailing_list)
        return None if written is None else read_filter(uow, mailing_list, written)


_MAX_DIGITS = 16


async def selection_of(request: Request) -> MemberSelection:
    """The selection of a page's query."""
    query = request.query_params
    typed = {name: query.get(name, "").strip()[:MAX_INPUT_CHARACTERS] for name in _NAMES}
    return MemberSelection({name: text for name, text in typed.items() if text})


SelectionOf = Annotated[MemberSelection, Depends(selection_of)]


def _simple_parts(typed: Mapping[str, str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if words := typed.get("q"):
        either = [{"field": name, "contains": words} for name in ("email", "name")]
        parts.append({"any": either})
    words_of = ("status", "type", "tag")
    parts += [{"field": name, "is": typed[name]} for name in words_of if name in typed]
    if since := typed.get("since"):
        parts.append({"field": "joined_at", "at_least": since})
    return parts


def _read(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise FILTER_NOT_JSON() from None
    if not isinstance(found, dict):
        raise FILTER_INVALID(place="filter", rule="must be an object")
    return found


def as_json(written: object) -> str:
    """A filter as a person reads it."""
    return orjson.dumps(written, option=orjson.OPT_INDENT_2).decode()
