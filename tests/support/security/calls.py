"""One API call per operation in the OpenAPI document, with the ids of one owner's data."""

from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

from tests.support.images.pictures import encoded
from tests.support.security.world import Values

ORDER = {"amount": 5, "redirect_url": "https://shop.example/done"}
FILTER = {"field": "email", "exists": True}
POST = {"title": "A title", "content": "Some words about birds."}

# With "offset", the route accepts a cursor or an offset. With "array", the route returns an array,
# with the link to the next page in a header.
Paging = Literal["cursor", "offset", "array"]


@dataclass(frozen=True)
class Call:
    """An API call, and the expected HTTP statuses.

    Attributes:
        others: the status if another user makes the call. 200 if the response contains only data of
            the caller or public data.
        permission: the permission that the call needs, or ``none``. ``kind`` if it depends on the
            kind of the job, event or export. Calls outside ``CALLS`` and ``CONSOLE_CALLS`` omit it.
        own: the status if the owner of the data makes the call.
        values: maps placeholders to keys of ``World.values``. By default, a placeholder is replaced
            by the value whose key is the placeholder's name.
        program: whether an OAuth client makes the call with its own id and secret, without a token.
        paging: how the route returns its items in pages, or an empty string.
    """

    others: int
    permission: str = ""
    own: int = 200
    values: dict[str, str] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    json: Any = None
    form: dict[str, str] | None = None
    program: bool = False
    files: dict[str, Any] | None = None
    paging: Paging | Literal[""] = ""

    def send(
        self, client: httpx2.Client, operation: str, values: Values, **headers: str
    ) -> httpx2.Response:
        method, path = operation.split(" ")
        known = values | {name: values[other] for name, other in self.values.items()}
        # The id and secret of the OAuth client replace the credentials of ``client``.
        secret = (known["other_client_id"], known["other_client_secret"]) if self.program else None
        query = {name: str(each).format(**known) for name, each in self.query.items()}
        return client.request(
            method,
            path.format(**known),
            params=query,
            json=_filled(self.json, known),
            data=_filled(self.form, known),
            files=self.files,
            auth=secret or httpx2.USE_CLIENT_DEFAULT,
            headers=headers,
        )


def _filled(body: Any, values: Values) -> Any:
    """Return a copy of the request body in which ids have replaced the `{placeholders}`."""
    if isinstance(body, dict):
        return {name: _filled(each, values) for name, each in body.items()}
    if isinstance(body, list):
        return [_filled(each, values) for each in body]
    return body.format(**values) if isinstance(body, str) else body


_MEMBER = "/subscriptions/{list_id}/members/{user_id}"
_ENDPOINT = "/webhook-endpoints/{endpoint_id}"
_SENDER = "/senders/{sender_id}"
_LEAVING = {"user_id": "leaving_user_id"}
_NO_REPORTS = '{{"type": "delivery.reports", "data": {{"reports": []}}}}'
_PAID = {"order_id": "paid_order_id"}

# The tests make the calls in the order of this dictionary, so calls that delete data come last.
CALLS: dict[str, Call] = {
    "GET /accounts": Call(200, "none"),
    "GET /users/me": Call(200, "none"),
    "PATCH /users/me": Call(200, "none", json={"import_mails": False}),
    "GET /users/me/security-events": Call(200, "none", paging="cursor"),
    "GET /events": Call(404, "kind", query={"list_id": "{list_id}"}, paging="cursor"),
    "GET /apikeys": Call(200, "access", paging="array"),
    "GET /apikeys/{key_id}/requests": Call(404, "access", paging="cursor"),
    "POST /apikeys": Call(200, "access", json={"name": "another"}),
    "GET /auxilia/credits/balance": Call(200, "money.read"),
    "GET /auxilia/credits/ledger": Call(200, "money.read", paging="offset"),
    "GET /auxilia/credits/low-balance": Call(200, "money.read"),
    "PUT /auxilia/credits/low-balance": Call(200, "money", json={"below_credit": 50}),
    "POST /auxilia/credits/consume": Call(
        402, "money", json={"amount_credit": 1, "source_id": "isolation"}
    ),
    "POST /auxilia/credits/topup": Call(200, "money", json=ORDER),
    "GET /auxilia/credits/prices": Call(200, "none"),
    "GET /auxilia/credits/orders": Call(200, "money.read", paging="offset"),
    "GET /auxilia/credits/orders/{order_id}": Call(404, "money.read", values=_PAID),
    # Anyone with the claim token of an order may see and claim the order. The claim token in these
    # calls belongs to no order, so even the owner gets status 404.
    "POST /auxilia/credits/orders/status": Call(
        404, "none", json={"claim_token": "x" * 43}, own=404
    ),
    "POST /auxilia/credits/orders/claim": Call(
        404, "money", json={"claim_token": "x" * 43}, own=404
    ),
    "POST /webhooks/stripe": Call(400, "none", own=400, json={}),
    "POST /webhook-endpoints": Call(
        200, "access", json={"url": "http://127.0.0.1:9/", "types": ["order.disputed"]}
    ),
    "GET /webhook-endpoints": Call(200, "access"),
    f"GET {_ENDPOINT}": Call(404, "access"),
    f"PATCH {_ENDPOINT}": Call(404, "access", json={"types": ["order.refunded"]}),
    f"POST {_ENDPOINT}/rotate": Call(404, "access"),
    # The owner has paused this webhook endpoint. Calls that would send an event to the endpoint
    # therefore get the status 409.
    f"POST {_ENDPOINT}/test": Call(404, "access", own=409),
    f"POST {_ENDPOINT}/replay": Call(
        404, "access", own=409, json={"since": "2026-01-01T00:00:00Z"}
    ),
    f"GET {_ENDPOINT}/deliveries": Call(404, "access", paging="cursor"),
    f"POST {_ENDPOINT}/deliveries/{{delivery_id}}/resend": Call(404, "access", own=409),
    "POST /senders": Call(200, "access", json={"name": "Another", "provider": "generic"}),
    "GET /senders": Call(200, "access"),
    f"GET {_SENDER}": Call(404, "access"),
    f"PATCH {_SENDER}": Call(404, "access", json={"name": "Changed"}),
    f"POST {_SENDER}/rotate": Call(404, "access"),
    f"GET {_SENDER}/reports": Call(404, "access", paging="cursor"),
    "GET /lists/{list_id}/mailings": Call(403, "figures", paging="offset"),
    "GET /lists/{list_id}/mailings/{mailing_id}": Call(403, "figures"),
    "PATCH /lists/{list_id}/mailings/{mailing_id}": Call(403, "edit", json={"label": "A new name"}),
    f"POST {_SENDER}/try": Call(404, "access", json={"body": _NO_REPORTS}),
    # This call uses the id of a list as the id of the sender. A call with the id of a real sender
    # would increase the number of this sender's rejected calls.
    f"POST {_SENDER}/events": Call(401, "none", own=401, values={"sender_id": "list_id"}, json={}),
    "POST /attachments": Call(200, "images", files={"file": ("picture.png", encoded("PNG"))}),
    "GET /attachments": Call(200, "images", paging="offset"),
    "GET /attachments/{hash_id}": Call(404, "images"),
    "PATCH /attachments/{hash_id}": Call(404, "images", json={"title": "Changed"}),
    "POST /attachments/{hash_id}/links": Call(
        404, "images", json={"expires_in": 60}, values={"hash_id": "closed_hash_id"}
    ),
    "GET /media/{filename}": Call(404, "none"),
    "POST /lists": Call(
        200, "edit", json={"title": "Another", "slug": "another-{order_id}-{as_whom}"}
    ),
    "GET /lists": Call(200, "figures", paging="offset"),
    # Lists are public.
    "GET /lists/{list_id}": Call(200, "figures"),
    "PATCH /lists/{list_id}": Call(403, "edit", json={"tagline": "Changed"}),
    "GET /lists/{list_id}/stats": Call(403, "figures"),
    "GET /lists/{list_id}/embed": Call(403, "figures"),
    "GET /lists/{list_id}/previews/{part}": Call(403, "figures"),
    "POST /lists/{list_id}/previews/{part}": Call(403, "edit", json={"colour": "#1d4ed8"}),
    "POST /subscriptions/{list_id}": Call(200, "none", json={"email": "{as_whom}@example.com"}),
    "POST /subscriptions/{list_id}/no-challenge": Call(200, "none"),
    "GET /subscriptions/{list_id}/rel": Call(200, "none"),
    "GET /subscriptions": Call(200, "none", paging="array"),
    "GET /subscriptions/opponent": Call(200, "none", query={"list_id": "{list_id}"}),
    "PUT /subscriptions/{list_id}/email": Call(200, "none", json={"enabled": True}),
    "PUT /subscriptions/{list_id}/engagement": Call(200, "none", json={"enabled": True}),
    "POST /subscriptions/{list_id}/delete": Call(200, "none"),
    "DELETE /subscriptions/{list_id}": Call(200, "none"),
    "GET /lists/{list_id}/subscriptions": Call(403, "members", paging="offset"),
    "POST /lists/{list_id}/members/search": Call(
        403, "members", json={"filter": {"field": "email", "contains": "@example"}}
    ),
    f"PUT {_MEMBER}/email": Call(403, "edit", json={"enabled": False}),
    f"PUT {_MEMBER}/engagement": Call(403, "edit", json={"enabled": False}),
    "GET /lists/{list_id}/engagement": Call(403, "figures"),
    f"GET {_MEMBER}/subs": Call(403, "members", paging="array"),
    "GET /lists/{list_id}/members/{user_id}": Call(403, "members"),
    "PATCH /lists/{list_id}/members/{user_id}": Call(403, "edit", json={"name": "Changed"}),
    "PUT /lists/{list_id}/members/{user_id}": Call(403, "edit", json={"name": "Put"}),
    "GET /lists/{list_id}/members/{user_id}/history": Call(403, "members", paging="offset"),
    "GET /lists/{list_id}/tags": Call(403, "figures", paging="offset"),
    "PATCH /lists/{list_id}/tags/{tag_id}": Call(403, "edit", json={"name": "Changed"}),
    "POST /fields": Call(
        200, "edit", json={"key": "a{order_id}", "label": "Another", "type": "text"}
    ),
    "GET /fields": Call(200, "figures"),
    "PATCH /fields/{field_id}": Call(404, "edit", json={"label": "Changed"}),
    "GET /lists/{list_id}/members/{user_id}/consent": Call(403, "members", paging="offset"),
    f"POST {_MEMBER}/transfer": Call(
        403, "edit", query={"dst_list_id": "{dst_list_id}"}, values={"user_id": "moving_user_id"}
    ),
    "POST /auxilia/subscriptions/{list_id}/members/add": Call(
        403, "edit", json={"members": [{"email": "added.{as_whom}@example.com"}]}
    ),
    "POST /lists/{list_id}/imports": Call(
        403, "edit", own=202, files={"file": ("more.csv", b"Email\nmore@example.com\n")}
    ),
    "PUT /deny-list": Call(
        200, "edit", json={"addresses": [], "domains": ["{order_id}.example.org"]}
    ),
    "PATCH /deny-list": Call(200, "edit", json={"add_addresses": ["{as_whom}@example.org"]}),
    "GET /deny-list": Call(200, "members"),
    "GET /imports": Call(200, "figures", paging="offset"),
    "GET /imports/{import_id}/undo": Call(404, "figures"),
    "GET /imports/{import_id}": Call(404, "figures"),
    # Files can be downloaded only with a signed link, so even the owner's API key gets status 403.
    "GET /imports/{import_id}/errors.csv": Call(403, "none", own=403),
    "POST /lists/{list_id}/exports": Call(403, "kind", json={"kind": "members"}),
    # Only a sending program's API key may mail members, so even the owner's key gets status 403.
    "POST /lists/{list_id}/deliveries": Call(
        403, "none", own=403, json={"user_ids": [1], "label": "Welcome"}
    ),
    "GET /exports/{export_id}/file.csv.gz": Call(403, "none", own=403),
    "GET /exports/{export_id}/file.jsonl.gz": Call(403, "none", own=403),
    "POST /lists/{list_id}/segments": Call(403, "edit", json={"name": "Another", "filter": FILTER}),
    "GET /lists/{list_id}/segments": Call(403, "figures", paging="offset"),
    "GET /lists/{list_id}/segments/{segment_id}": Call(403, "figures"),
    "PATCH /lists/{list_id}/segments/{segment_id}": Call(403, "edit", json={"name": "Changed"}),
    "GET /lists/{list_id}/segments/{segment_id}/changes": Call(403, "members", paging="offset"),
    "POST /lists/{list_id}/members/bulk": Call(
        403, "edit", own=202, json={"action": "tag", "value": "changed", "filter": FILTER}
    ),
    "GET /jobs": Call(200, "kind", paging="offset"),
    "GET /jobs/{job_id}": Call(404, "kind"),
    "GET /jobs/{job_id}/events": Call(404, "kind"),
    "POST /jobs/{job_id}/retry": Call(404, "kind", own=409),
    "DELETE /jobs/{job_id}": Call(404, "kind"),
    **{
        f"{method} {prefix}/composer/{rest}": call
        for prefix in ("", "/auxilia")
        for method, rest, call in (
            ("POST", "metadata", Call(200, "composer", json=POST)),
            ("POST", "generate-tweets", Call(200, "composer", json=POST)),
            ("GET", "{provider}/photos/search", Call(200, "composer", query={"query": "birds"})),
            (
                "GET",
                "{provider}/photos/download_url",
                Call(400, "composer", own=400, query={"endpoint": "x"}),
            ),
        )
    },
    "GET /.well-known/oauth-authorization-server": Call(200, "none"),
    "GET /oauth/userinfo": Call(200, "none"),
    "GET /grants": Call(200, "any", paging="array"),
    # These calls authenticate with the secret of an OAuth client instead of an API key. The tokens
    # belong to another client, so the responses must reveal nothing about the tokens.
    "POST /oauth/introspect": Call(200, "none", program=True, form={"token": "{access_token}"}),
    "POST /oauth/revoke": Call(200, "none", program=True, form={"token": "{refresh_token}"}),
    "POST /oauth/token": Call(
        400,
        "none",
        own=400,
        program=True,
        form={"grant_type": "refresh_token", "refresh_token": "{refresh_token}"},
    ),
    "GET /": Call(200, "none"),
    "GET /healthz": Call(200, "none"),
    "GET /readyz": Call(200, "none"),
    "GET /metrics": Call(401, "none", own=401),
    # Calls that delete data come last.
    "DELETE /bulk/{bulk_id}": Call(404, "edit"),
    "DELETE /lists/{list_id}/segments/{segment_id}": Call(403, "edit"),
    f"DELETE {_MEMBER}": Call(403, "edit", values=_LEAVING),
    "DELETE /imports/{import_id}/members": Call(404, "edit"),
    "DELETE /lists/{list_id}/tags/{tag_id}": Call(403, "edit"),
    "DELETE /fields/{field_id}": Call(404, "edit"),
    "DELETE /attachments/{hash_id}": Call(404, "images"),
    "DELETE /lists/{list_id}/traces": Call(403, "close", values={"list_id": "closing_list_id"}),
    "DELETE /lists/{list_id}": Call(403, "close", values={"list_id": "closing_list_id"}),
    f"DELETE {_ENDPOINT}": Call(404, "access"),
    f"DELETE {_SENDER}": Call(404, "access"),
    "DELETE /grants/{grant_id}": Call(404, "any"),
    "DELETE /apikeys/{key_id}": Call(404, "access"),
}

# The calls that every user may make about another user's list, for example to subscribe to it.
CALLS_FOR_EVERYBODY = {
    "POST /subscriptions/{list_id}",
    "POST /subscriptions/{list_id}/no-challenge",
    "PUT /subscriptions/{list_id}/email",
    "PUT /subscriptions/{list_id}/engagement",
    "POST /subscriptions/{list_id}/delete",
    "DELETE /subscriptions/{list_id}",
}
# Those calls in ``CALLS_FOR_EVERYBODY`` that need no credentials.
CALLS_FOR_STRANGERS = {"POST /subscriptions/{list_id}"}
# Calls for which an API key or OAuth token needs no scope, and calls without credentials.
CALLS_WITHOUT_SCOPE = {
    "GET /accounts",
    "GET /users/me",
    "PATCH /users/me",
    "GET /users/me/security-events",
    "GET /events",
    "POST /auxilia/credits/topup",
    "GET /auxilia/credits/prices",
    "POST /auxilia/credits/orders/status",
    "POST /webhooks/stripe",
    "POST /senders/{sender_id}/events",
    "GET /media/{filename}",
    "POST /subscriptions/{list_id}",
    "GET /imports/{import_id}/errors.csv",
    "GET /exports/{export_id}/file.csv.gz",
    "GET /exports/{export_id}/file.jsonl.gz",
    "GET /jobs",
    "GET /.well-known/oauth-authorization-server",
    "GET /oauth/userinfo",
    "POST /oauth/introspect",
    "POST /oauth/revoke",
    "POST /oauth/token",
    "GET /",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
}
# Calls whose responses contain public data of a list.
CALLS_WITH_PUBLIC_LIST = CALLS_FOR_EVERYBODY | {
    "GET /lists/{list_id}",
    "GET /subscriptions/{list_id}/rel",
    "GET /subscriptions",
    "GET /subscriptions/opponent",
}
