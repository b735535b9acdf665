"""What is asked of each page of the console, by the owner who has the most of everything.

The pages are those that the application routes, and the calls those of the tests of isolation, so
that a new page is measured as soon as those tests know it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from api.app import create_app
from api.console.assets import CONSOLE_PATH
from api.console.navigation import OPERATORS
from api.openapi import api_routes
from core.settings import Settings
from tests.security.calls import Call
from tests.security.console_calls import CONSOLE_CALLS

# The cheapest page behind a login: it reads the session, and shows a form.
CHEAPEST = f"GET {CONSOLE_PATH}/lists/new"
# Routes without a case, and why.
LEFT_OUT = {
    f"GET {CONSOLE_PATH}/assets/{{name}}": "a file, which browsers keep",
    f"GET {CONSOLE_PATH}/imports/{{import_id}}/events": "a stream, which lasts as long as its job",
    f"GET {CONSOLE_PATH}/exports/{{export_id}}/events": "a stream, which lasts as long as its job",
}


@dataclass(frozen=True)
class PageCase:
    """One page, as an owner or an operator opens it.

    Attributes:
        name: what the case is called, where a page has several.
    """

    operation: str
    call: Call
    name: str = ""

    @property
    def title(self) -> str:
        return f"{self.operation.removeprefix('GET ')} {self.name}".strip()

    @property
    def is_of_operators(self) -> bool:
        return self.operation.startswith(f"GET {OPERATORS.path}")

    @property
    def status(self) -> int:
        """That of the answer to whoever may see it."""
        return 200 if self.is_of_operators else self.call.own

    def path(self, values: Mapping[str, Any]) -> str:
        known = dict(values) | {name: values[other] for name, other in self.call.values.items()}
        query = {name: str(each).format(**known) for name, each in self.call.query.items()}
        path = self.operation.removeprefix("GET ").format(**known)
        return f"{path}?{urlencode(query)}" if query else path


def console_pages() -> set[str]:
    """Every page route of the console."""
    app = create_app(Settings.model_construct())
    return {
        f"GET {path}"
        for route in api_routes(app)
        if (path := route.path_format or "").startswith(CONSOLE_PATH)
        and "GET" in (route.methods or ())
    }


def page_cases() -> list[PageCase]:
    """A case of each page, and more of those that answer several questions.

    Raises LookupError with the names of pages that have none.
    """
    cases = [*_cases()]
    there, known = console_pages(), {each.operation for each in cases} | LEFT_OUT.keys()
    if there != known:
        raise LookupError(f"without a case, or no page any more: {sorted(there ^ known)}")
    return cases


def _cases() -> Iterator[PageCase]:
    for operation, call in CONSOLE_CALLS.items():
        if not operation.startswith("GET") or operation in LEFT_OUT:
            continue
        yield PageCase(operation, call)
        for name, asked in _MORE.get(operation, {}).items():
            yield PageCase(operation, replace(call, **asked), name)


def _query(**query: str) -> dict[str, Any]:
    return {"query": query}


_LIST = f"GET {CONSOLE_PATH}/lists/{{list_id}}"
_ALL = '{{"field": "status", "is": "active"}}'
_VIP = '{{"field": "tag", "is": "vip"}}'
# Twenty members of the largest list are rare, and a third is vip.
_MORE: dict[str, dict[str, dict[str, Any]]] = {
    f"GET {CONSOLE_PATH}/find": {
        "many begin so": _query(q="ada"),
        "few begin so": _query(q="ada.adams77"),
        "nobody": _query(q="nobody at all"),
    },
    _LIST: {"of three years": _query(days="1095")},
    f"{_LIST}/members": {
        "half way down": _query(cursor="{subscription_id}"),
        "unsubscribed": _query(status="unsubscribed"),
        "by a rare tag": _query(tag="rare"),
        "by a common tag": _query(tag="vip"),
        "by a segment of many": _query(segment="{vip_segment_id}"),
        "a part of few addresses": _query(q="adams7777"),
        "a part of none": _query(q="xyz"),
        "gold": _query(type="gold"),
        "since this year": _query(since="2026-01-01"),
    },
    f"{_LIST}/segments/{{segment_id}}": {"of many": {"values": {"segment_id": "vip_segment_id"}}},
    f"{_LIST}/segments/new": {"of many": _query(filter=_VIP)},
    f"{_LIST}/tags/{{tag_id}}": {"of many": {"values": {"tag_id": "vip_tag_id"}}},
    f"{_LIST}/acts/new": {"on many": _query(filter=_VIP), "on all": _query(filter=_ALL)},
    f"GET {CONSOLE_PATH}/imports/{{import_id}}": {
        "of a large file": {"values": {"import_id": "old_import_id"}}
    },
    f"GET {CONSOLE_PATH}/imports/{{import_id}}/undo": {
        "of a large file": {"values": {"import_id": "old_import_id"}}
    },
    f"GET {CONSOLE_PATH}/credits": {
        "of one kind": _query(action="adjust"),
        "of some days": _query(**{"from": "2026-01-01", "to": "2026-01-31"}),
        "half way down": _query(cursor="{entry_id}"),
    },
    f"GET {CONSOLE_PATH}/programs/feed": {"of a rare type": _query(type="import.ended")},
    f"GET {OPERATORS.path}/jobs": {
        "of all kinds": _query(status="any"),
        "of one lane": _query(status="any", lane="bulk"),
    },
}
