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


_MEMBER = "/subscriptions/{list_id}/members/{user_id}"
_MANY = [{"email": f"many{number}.{{fresh}}@example.com"} for number in range(200)]
_WHOLE_FILE = b"Email,Tags,created_at,OPTIN_TIME\n" + b"".join(
    b"whole%d@example.com,t%d,2024-05-06,2024-05-06\n" % (number, number % 9)
    for number in range(200)
)

# The API calls to measure. Calls that delete a row follow the calls that need the row.
ROUTES: dict[str, tuple[RouteCase, ...]] = {
    "GET /users/me": (_read(),),
    "PATCH /users/me": (_write(times=3),),
    "GET /users/me/security-events": (_page(), _page("further down", cursor="{event_id}")),
    "GET /events": (
        _page(),
        _page("of a rare type", type="import.ended"),
        _page("of one list", list_id="{list_id}"),
        _page("half way down", cursor="250-0"),
    ),
    "GET /apikeys": (_page(),),
    "GET /apikeys/{key_id}/requests": (_page(), _page("of one status", status="429")),
    "POST /apikeys": (_write(times=3),),
    "GET /auxilia/credits/balance": (_read(),),
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
    "GET /auxilia/credits/low-balance": (_read(),),
    "PUT /auxilia/credits/low-balance": (_write(times=3),),
    "POST /auxilia/credits/topup": (_write(),),
    "GET /auxilia/credits/prices": (_read(),),
    "GET /auxilia/credits/orders": (_page(), _page("of one status", status="paid")),
    "GET /auxilia/credits/orders/{order_id}": (_read(Call(200, values={"order_id": "old_order"})),),
    "POST /auxilia/credits/orders/status": (
        _read(Call(200, json={"claim_token": "{claim_token}"})),
    ),
    "POST /auxilia/credits/orders/claim": (_read(),),
    "POST /attachments": (_write(times=3),),
    "GET /attachments": (_page(), _page("offset 1,000", offset=1000)),
    "GET /attachments/{hash_id}": (_read(),),
    "PATCH /attachments/{hash_id}": (_write(times=3),),
    "POST /attachments/{hash_id}/links": (_write(times=3),),
    "GET /media/{filename}": (_read(Call(404, values={"filename": "open_filename"})),),
    "POST /lists": (_write(Call(200, json={"title": "Another", "slug": "l-{fresh}"}), times=3),),
    "GET /lists": (_page(),),
    "GET /lists/{list_id}": (_read(),),
    "PATCH /lists/{list_id}": (_write(times=3),),
    "GET /lists/{list_id}/stats": (
        _page(),
        _page("by origin", by="utm_source"),
        _page("by reason, a year", by="reason", **{"from": "2026-01-01", "to": "2026-12-31"}),
        _page("by website, a year", by="referrer", **{"from": "2026-01-01", "to": "2026-12-31"}),
        _page("by source, a year", by="source", **{"from": "2026-01-01", "to": "2026-12-31"}),
    ),
    "GET /lists/{list_id}/embed": (_read(),),
    "GET /lists/{list_id}/previews/{part}": (_read(),),
    "POST /lists/{list_id}/previews/{part}": (_write(times=3),),
    "POST /subscriptions/{list_id}": (
        _write(Call(200, json={"email": "{fresh}@example.com"}), times=3),
    ),
    "POST /subscriptions/{list_id}/no-challenge": (_write(times=3),),
    "GET /subscriptions/{list_id}/rel": (_read(),),
    "GET /subscriptions": (_page(),),
    "GET /subscriptions/opponent": (_read(),),
    "PUT /subscriptions/{list_id}/email": (_write(times=3),),
    "POST /subscriptions/{list_id}/delete": (_write(),),
    "DELETE /subscriptions/{list_id}": (_write(),),
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
    f"PUT {_MEMBER}/email": (_write(times=3),),
    f"GET {_MEMBER}/subs": (_page(),),
    "GET /lists/{list_id}/members/{user_id}": (
        _read(),
        _read(Call(200, values={"user_id": "member_email"}), name="by the address"),
    ),
    "PATCH /lists/{list_id}/members/{user_id}": (_write(times=3),),
    "PUT /lists/{list_id}/members/{user_id}": (
        _write(Call(200, json={"tags": ["{fresh}"]}, values={"user_id": "member_email"}), times=3),
    ),
    "GET /lists/{list_id}/tags": (_page(),),
    "PATCH /lists/{list_id}/tags/{tag_id}": (_write(Call(200, json={"name": "{fresh}"}), times=3),),
    "POST /fields": (_write(),),
    "GET /fields": (_page(),),
    "PATCH /fields/{field_id}": (_write(times=3),),
    "GET /lists/{list_id}/members/{user_id}/history": (_page(),),
    "GET /lists/{list_id}/members/{user_id}/consent": (_page(),),
    "POST /lists/{list_id}/segments": (
        _write(Call(200, json={"name": "{fresh}", "filter": {"field": "tag", "is": "rare"}})),
    ),
    "GET /lists/{list_id}/mailings": (_page(),),
    "GET /lists/{list_id}/mailings/{mailing_id}": (_read(),),
    "PATCH /lists/{list_id}/mailings/{mailing_id}": (
        _write(Call(200, json={"label": "{fresh}"}), times=3),
    ),
    "GET /lists/{list_id}/segments": (_page(),),
    # The segment in this call has at most three members, so the API counts only a few members.
    "GET /lists/{list_id}/segments/{segment_id}": (_read(),),
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
    f"POST {_MEMBER}/transfer": (_write(),),
    "POST /auxilia/subscriptions/{list_id}/members/add": (
        _batch(Call(200, json={"members": [{"email": "added.{fresh}@example.com"}]}), times=3),
        _batch(Call(200, json={"members": _MANY}), name="200 members"),
    ),
    "PUT /deny-list": (_write(times=3),),
    "PATCH /deny-list": (_write(times=3),),
    "GET /deny-list": (_read(),),
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
    "GET /imports/{import_id}": (_read(),),
    "GET /imports/{import_id}/undo": (_read(),),
    "GET /imports/{import_id}/errors.csv": (_read(expected_status=200, url="errors_url"),),
    "POST /lists/{list_id}/exports": (
        _batch(Call(200, json={"kind": "members"}, values={"list_id": "dst_list_id"})),
    ),
    "GET /exports/{export_id}/file.csv.gz": (_read(expected_status=200, url="export_url"),),
    "GET /exports/{export_id}/file.jsonl.gz": (_read(),),
    "GET /jobs": (_page(), _page("offset 1,000", offset=1000)),
    "GET /jobs/{job_id}": (_read(),),
    "GET /jobs/{job_id}/events": (_read(times=3),),
    "POST /jobs/{job_id}/retry": (_read(),),
    "DELETE /jobs/{job_id}": (_read(),),
    "GET /oauth/userinfo": (_read(),),
    "GET /grants": (_page(),),
    "POST /oauth/introspect": (_read(),),
    "POST /oauth/revoke": (_write(),),
    "POST /oauth/token": (_write(),),
    "POST /webhooks/stripe": (_read(),),
    # Each round creates only one webhook endpoint and one sender, because an account can have at
    # most 20 of each.
    "POST /webhook-endpoints": (_write(),),
    "GET /webhook-endpoints": (_page(),),
    "GET /webhook-endpoints/{endpoint_id}": (_read(),),
    "PATCH /webhook-endpoints/{endpoint_id}": (_write(times=3),),
    "POST /webhook-endpoints/{endpoint_id}/rotate": (_write(),),
    "POST /webhook-endpoints/{endpoint_id}/test": (_read(),),
    "POST /webhook-endpoints/{endpoint_id}/replay": (_read(),),
    "GET /webhook-endpoints/{endpoint_id}/deliveries": (_page(),),
    "POST /webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}/resend": (_read(),),
    "POST /senders": (_write(),),
    "GET /senders": (_page(),),
    "GET /senders/{sender_id}": (_read(),),
    "PATCH /senders/{sender_id}": (_write(times=3),),
    "POST /senders/{sender_id}/rotate": (_write(),),
    "GET /senders/{sender_id}/reports": (_page(),),
    "POST /senders/{sender_id}/try": (_read(),),
    "POST /senders/{sender_id}/events": (_read(),),
    "POST /composer/metadata": (_read(),),
    "POST /composer/generate-tweets": (_read(),),
    "GET /composer/{provider}/photos/search": (_read(),),
    "GET /composer/{provider}/photos/download_url": (_read(),),
    "POST /auxilia/composer/metadata": (_read(),),
    "POST /auxilia/composer/generate-tweets": (_read(),),
    "GET /auxilia/composer/{provider}/photos/search": (_read(),),
    "GET /auxilia/composer/{provider}/photos/download_url": (_read(),),
    "GET /.well-known/oauth-authorization-server": (_read(),),
    "GET /": (_read(),),
    "GET /healthz": (_read(),),
    "GET /readyz": (_read(),),
    "GET /metrics": (
        _read(expected_status=200, headers={"Authorization": f"Bearer {METRICS_TOKEN}"}),
    ),
    "DELETE /bulk/{bulk_id}": (_batch(),),
    "DELETE /lists/{list_id}/segments/{segment_id}": (_write(),),
    f"DELETE {_MEMBER}": (_write(),),
    "DELETE /imports/{import_id}/members": (_batch(),),
    "DELETE /lists/{list_id}/tags/{tag_id}": (_write(),),
    "DELETE /fields/{field_id}": (_write(),),
    "DELETE /attachments/{hash_id}": (_write(),),
    "DELETE /lists/{list_id}/traces": (_write(),),
    "DELETE /lists/{list_id}": (_write(),),
    "DELETE /webhook-endpoints/{endpoint_id}": (_write(),),
    "DELETE /senders/{sender_id}": (_write(),),
    "DELETE /grants/{grant_id}": (_write(),),
    "DELETE /apikeys/{key_id}": (_write(),),
}


def choose_call(operation: str, case: RouteCase) -> Call:
    return case.call or CALLS[operation]
