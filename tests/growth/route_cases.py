"""The API calls of the growth benchmark.

A call returns or changes the same number of rows on a small and on a large database. The calls use
the API key of the owner with the most rows in the database. The placeholders in a call are replaced
by values of ``World`` and of ``tests.growth.rounds``. The placeholder ``{fresh}`` is replaced by a
new random text in each call.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from benchmarks.scale.sized_stack import METRICS_TOKEN
from tests.support.lists.engagement import INACTIVE_FOR_90_DAYS
from tests.support.security.calls import CALLS, Call


class Group(StrEnum):
    READ = "keyed reads"
    WRITE = "keyed writes"
    PAGE = "pages"
    BATCH = "batches"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True)
class RouteCase:
    """A benchmark case: an API call whose duration is measured.

    Attributes:
        call: the parameters of the call, or ``None`` for the route's call in ``CALLS``.
        expected_status: the status of the response, or ``None`` for the status in ``call``.
        times: the number of calls per round, or 1 if the call can't be repeated. The benchmark uses
            only the fastest call of a round.
        name: distinguishes the cases of one route.
        url: the name of the value that contains the whole URL to request, such as a signed URL, or
            an empty string to request the route.
        headers: additional request headers.
    """

    group: Group
    call: Call | None = None
    expected_status: int | None = None
    times: int = 1
    name: str = ""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def _read(call: Call | None = None, **more: Any) -> RouteCase:
    return RouteCase(Group.READ, call, times=more.pop("times", 5), **more)


def _write(call: Call | None = None, **more: Any) -> RouteCase:
    return RouteCase(Group.WRITE, call, **more)


def _page(name: str = "", **query: Any) -> RouteCase:
    return RouteCase(Group.PAGE, Call(200, query=query), times=5, name=name)


def _batch(call: Call | None = None, **more: Any) -> RouteCase:
    return RouteCase(Group.BATCH, call, **more)


def _search(name: str, **condition: Any) -> RouteCase:
    return RouteCase(Group.PAGE, Call(200, json={"filter": condition}), times=5, name=name)


_MANY = [{"email": f"many{number}.{{fresh}}@example.com"} for number in range(200)]
_WHOLE_FILE = b"Email,Tags,created_at,OPTIN_TIME\n" + b"".join(
    b"whole%d@example.com,t%d,2024-05-06,2024-05-06\n" % (number, number % 9)
    for number in range(200)
)

_CASES: dict[str, tuple[RouteCase, ...]] = {
    "GET /users/me/security-events": (_page(), _page("further down", cursor="{event_id}")),
    "GET /events": (
        _page(),
        _page("of a rare type", type="import.ended"),
        _page("of one list", list_id="{list_id}"),
        _page("half way down", cursor="250-0"),
    ),
    "GET /apikeys/{key_id}/requests": (_page(), _page("of one status", status="429")),
    "GET /auxilia/credits/ledger": (
        _page(),
        _page("offset 1,000", offset=1000),
        _page("half way down", cursor="{entry_id}"),
        _page("of a rare action", action="adjust"),
        _page("of some days", **{"from": "2026-01-01", "to": "2026-01-31"}),
    ),
    "POST /auxilia/credits/consume": (
        _write(Call(200, json={"amount_credit": 1, "source_id": "growth"}), times=5),
    ),
    "GET /auxilia/credits/orders": (_page(), _page("of one status", status="paid")),
    "GET /auxilia/credits/orders/{order_id}": (_read(Call(200, values={"order_id": "old_order"})),),
    "POST /auxilia/credits/orders/status": (
        _read(Call(200, json={"claim_token": "{claim_token}"})),
    ),
    "GET /attachments": (_page(), _page("offset 1,000", offset=1000)),
    "GET /media/{filename}": (_read(Call(404, values={"filename": "open_filename"})),),
    "POST /lists": (_write(Call(200, json={"title": "Another", "slug": "l-{fresh}"}), times=3),),
    "GET /lists/{list_id}/stats": (
        _page(),
        _page("by origin", by="utm_source"),
        _page("by reason, a year", by="reason", **{"from": "2026-01-01", "to": "2026-12-31"}),
        _page("by website, a year", by="referrer", **{"from": "2026-01-01", "to": "2026-12-31"}),
        _page("by source, a year", by="source", **{"from": "2026-01-01", "to": "2026-12-31"}),
    ),
    "POST /subscriptions/{list_id}": (
        _write(Call(200, json={"email": "{fresh}@example.com"}), times=3),
    ),
    "GET /lists/{list_id}/subscriptions": (
        _page(),
        _page("half way down", cursor="{subscription_id}"),
        _page("one address", email="{member_email}"),
        _page("addresses that begin so", email="ada.adams1*"),
        _page("on a paid tier", premium="1"),
        _page("unsubscribed", status="unsubscribed"),
    ),
    # In a database of any size, the rare tag, the rare city and the rare sign-up origin belong to
    # the same twenty members of the largest list.
    "POST /lists/{list_id}/members/search": (
        _search("by a rare tag", field="tag", **{"is": "rare"}),
        _search("by a common tag", field="tag", **{"is": "vip"}),
        _search("by a rare value", field="fields.city", **{"is": "utqiagvik"}),
        _search("without a value", field="fields.city", exists=False),
        _search("a part of few names", field="name", contains="rson 77777"),
        _search("a part of no name", field="name", contains="xyz"),
        _search("a part of no value", field="fields.city", contains="xyz"),
        _search("all but some", **{"not": {"field": "fields.visits", "at_least": 50}}),
        _search("a rare bounce", field="bounced", **{"is": "soft"}),
        _search("with any bounce", field="bounced", is_not="none"),
        _search("without a bounce", field="bounced", **{"is": "none"}),
        _search("by rare clicks", field="clicks", at_least=50),
        _search("by common opens", field="opens", at_least=1),
        _search("without engagement", field="opens", exists=False),
        _search("inactive for 90 days", **INACTIVE_FOR_90_DAYS),
        _search("by a rare answer", field="engagement_choice", **{"is": "no"}),
        _search("without an answer", field="engagement_choice", **{"is": "none"}),
        _search("by a rare reason", field="left_reason", **{"is": "complained"}),
        _search("by a common reason", field="left_reason", **{"is": "unsubscribed"}),
        _search("by a mailing", field="left_mailing", **{"is": 1}),
        _search("by a rare origin", field="utm_source", **{"is": "utqiagvik"}),
        _search("by a common origin", field="utm_source", **{"is": "source-3"}),
        _search("a part of a rare origin", field="utm_source", contains="qiagv"),
        _search("the beginning of no origin", field="utm_source", begins="xyz"),
        _search("by a rare campaign", field="utm_campaign", exists=True),
        _search("without a campaign", field="utm_campaign", exists=False),
        _search("before all", field="joined_at", before="2001-01-01"),
        _search("joined ten years ago", field="joined_at", before={"days_ago": 3650}),
        _search("joined in the last month", field="joined_at", after={"days_ago": 30}),
        _search("pending or removed", field="status", **{"in": ["pending", "removed"]}),
    ),
    "GET /lists/{list_id}/members/{user_id}": (
        _read(),
        _read(Call(200, values={"user_id": "member_email"}), name="by the address"),
    ),
    "PUT /lists/{list_id}/members/{user_id}": (
        _write(Call(200, json={"tags": ["{fresh}"]}, values={"user_id": "member_email"}), times=3),
    ),
    "PATCH /lists/{list_id}/tags/{tag_id}": (_write(Call(200, json={"name": "{fresh}"}), times=3),),
    "POST /lists/{list_id}/segments": (
        _write(Call(200, json={"name": "{fresh}", "filter": {"field": "tag", "is": "rare"}})),
    ),
    "PATCH /lists/{list_id}/mailings/{mailing_id}": (
        _write(Call(200, json={"label": "{fresh}"}), times=3),
    ),
    "PATCH /lists/{list_id}/segments/{segment_id}": (
        _write(Call(200, json={"name": "{fresh}"}), times=3),
    ),
    # A bulk action reads each member of its list, so choose a small list.
    "POST /lists/{list_id}/members/bulk": (
        _batch(
            Call(
                200,
                own=202,
                json={"action": "email_off", "filter": {"field": "email", "exists": True}},
                values={"list_id": "dst_list_id"},
            )
        ),
    ),
    "POST /auxilia/subscriptions/{list_id}/members/add": (
        _batch(Call(200, json={"members": [{"email": "added.{fresh}@example.com"}]}), times=3),
        _batch(Call(200, json={"members": _MANY}), name="200 members"),
    ),
    "POST /lists/{list_id}/imports": (
        # Measure several calls, because most of the time is spent on writing to the object storage,
        # and this time varies by a factor of two.
        _batch(times=5),
        # Only the first import of this file adds members. In all later imports of the file, every
        # person is already on the list.
        _batch(
            Call(200, files={"file": ("whole.csv", _WHOLE_FILE)}),
            times=2,
            name="of tags and claims",
            headers={"Prefer": "wait=30"},
        ),
    ),
    "GET /imports": (_page(), _page("of one list", list_id="{list_id}")),
    "GET /imports/{import_id}/errors.csv": (_read(expected_status=200, url="errors_url"),),
    "POST /lists/{list_id}/exports": (
        _batch(Call(200, json={"kind": "members"}, values={"list_id": "dst_list_id"})),
    ),
    "GET /exports/{export_id}/file.csv.gz": (_read(expected_status=200, url="export_url"),),
    "GET /jobs": (_page(), _page("offset 1,000", offset=1000)),
    "GET /jobs/{job_id}/events": (_read(times=3),),
    "GET /metrics": (
        _read(expected_status=200, headers={"Authorization": f"Bearer {METRICS_TOKEN}"}),
    ),
    **dict.fromkeys(
        (
            "POST /apikeys",
            "POST /attachments",
            "POST /attachments/{hash_id}/links",
            "POST /lists/{list_id}/previews/{part}",
            "POST /subscriptions/{list_id}/no-challenge",
        ),
        (_write(times=3),),
    ),
    **dict.fromkeys(
        (
            "POST /oauth/introspect",
            "POST /senders/{sender_id}/try",
            "POST /composer/metadata",
            "POST /composer/generate-tweets",
            "POST /auxilia/composer/metadata",
            "POST /auxilia/composer/generate-tweets",
        ),
        (_read(),),
    ),
}


def _choose_default(operation: str, call: Call) -> RouteCase:
    if operation.startswith("GET ") or not 200 <= call.own < 300:
        return _page() if call.paging else _read()
    return _write(times=3 if operation.startswith(("PUT ", "PATCH ")) else 1)


# The API calls to measure, in the order of ``CALLS``.
ROUTES = {
    operation: _CASES.get(operation, (_choose_default(operation, call),))
    for operation, call in CALLS.items()
}
