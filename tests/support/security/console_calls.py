"""One request for each page and form of the console, with the ids of one owner's data.

Security tests send all requests in CONSOLE_CALLS. If you add a page or form to the console, also
add a request for it to CONSOLE_CALLS.
"""

from dataclasses import replace

from tests.support.security.calls import Call

_LIST = "/console/lists/{list_id}"
_IMPORT = "/console/imports/{import_id}"
_EXPORT = "/console/exports/{export_id}"
_IMAGE = "/console/images/{hash_id}"
_HOOKS = "/console/developers/webhooks"
_HOOK = f"{_HOOKS}/{{endpoint_id}}"
_SENDERS = "/console/developers/senders"
_SENDER = f"{_SENDERS}/{{sender_id}}"
_FILE = {"file": ("members.csv", b"email\r\nada@example.com\r\n")}
_MEMBER = f"{_LIST}/members/{{user_id}}"
_CLOSING = {"list_id": "closing_list_id"}
_LEAVING = {"user_id": "leaving_user_id"}
_MOVING = {"user_id": "moving_user_id"}
_PAID = {"order_id": "paid_order_id"}
_FILTER = '{{"field": "tag", "is": "{mark}"}}'
_OPERATORS = "/console/operators"
_HIDDEN = Call(404, "none", own=404)
_NEW_LIST = {"title": "By a form", "slug": "form-{order_id}-{as_whom}"}

# The requests contain ids of one owner's data. ``own`` is the HTTP status that the owner of the
# data gets. ``others``, the first argument of ``Call``, is the HTTP status that other owners get.
CONSOLE_CALLS: dict[str, Call] = {
    "GET /console": Call(200, "figures"),
    "GET /console/assets/{name}": Call(200, "none", values={"name": "asset"}),
    "GET /console/find": Call(200, "members", query={"q": "member0"}),
    "POST /console/warnings/import/{import_id}/dismiss": Call(404, "edit", own=303),
    "POST /console/warnings/webhook/{endpoint_id}/dismiss": Call(404, "access", own=303),
    "POST /console/warnings/sender/{sender_id}/dismiss": Call(404, "access", own=303),
    "GET /console/lists": Call(200, "figures"),
    "GET /console/lists/new": Call(200, "edit"),
    "POST /console/lists/new": Call(303, "edit", own=303, form=_NEW_LIST),
    f"GET {_LIST}": Call(404, "figures"),
    f"GET {_LIST}/settings": Call(404, "edit"),
    f"POST {_LIST}/settings": Call(404, "edit", own=422, form={"title": ""}),
    f"GET {_LIST}/public": Call(404, "edit"),
    f"POST {_LIST}/public": Call(404, "edit", own=422, form={"colour": "#ffffff"}),
    f"GET {_LIST}/archive": Call(404, "close"),
    f"GET {_LIST}/engagement": Call(404, "figures"),
    f"POST {_LIST}/engagement": Call(404, "edit", own=422, form={"engagement": "x"}),
    f"GET {_LIST}/mailings": Call(404, "figures"),
    f"GET {_LIST}/mailings/{{mailing_id}}": Call(404, "figures"),
    f"POST {_LIST}/mailings/{{mailing_id}}": Call(
        404, "edit", own=303, form={"label": "By a form"}
    ),
    f"GET {_LIST}/send": Call(404, "access"),
    f"GET {_LIST}/send/key": Call(404, "access"),
    f"POST {_LIST}/send/key": Call(
        404, "access", own=422, form={"name": "By a form", "lifetime": "x"}
    ),
    "GET /console/imports": Call(200, "figures"),
    "GET /console/imports/new": Call(200, "edit"),
    "POST /console/imports/new": Call(422, "edit", own=422, form={"kind": "members"}, files=_FILE),
    f"GET {_IMPORT}": Call(404, "figures"),
    # Only a dry run of an import has a preview. The tested import wasn't a dry run, so a request to
    # refresh its preview gets status 409.
    f"POST {_IMPORT}": Call(404, "edit", own=409, form={"act": "look"}),
    f"GET {_IMPORT}/events": Call(404, "figures"),
    f"GET {_IMPORT}/not-added": Call(404, "members", own=303),
    f"POST {_IMPORT}/cancel": Call(404, "edit", own=303, form={}),
    f"POST {_IMPORT}/retry": Call(404, "edit", own=409, form={}),
    f"GET {_IMPORT}/undo": Call(404, "edit"),
    "GET /console/exports": Call(200, "figures"),
    f"GET {_LIST}/export": Call(404, "export"),
    f"POST {_LIST}/export": Call(404, "export", own=422, form={"format": "pdf"}),
    f"GET {_EXPORT}": Call(404, "figures"),
    f"GET {_EXPORT}/events": Call(404, "figures"),
    f"POST {_EXPORT}/cancel": Call(404, "export", own=303, form={}),
    f"GET {_EXPORT}/file": Call(404, "export", own=303),
    "GET /console/images": Call(200, "images"),
    # The uploaded file isn't an image, so the console rejects it with status 415.
    "POST /console/images": Call(415, "images", own=415, form={"encrypted": "on"}, files=_FILE),
    f"GET {_IMAGE}": Call(404, "images"),
    f"POST {_IMAGE}": Call(404, "images", own=422, form={"title": "x" * 256}),
    f"POST {_IMAGE}/retry": Call(404, "images", own=409, form={}),
    f"GET {_IMAGE}/delete": Call(404, "images"),
    f"GET {_LIST}/tags/{{tag_id}}/delete": Call(404, "edit"),
    # Only encrypted images have links, and this image isn't encrypted.
    f"GET {_IMAGE}/link": Call(404, "images", own=409),
    f"POST {_IMAGE}/link": Call(404, "images", own=409, form={"lasts": "3600"}),
    "GET /console/composer": Call(200, "composer"),
    # The blog post in this form is empty, so the console rejects the form with status 422.
    "POST /console/composer": Call(422, "composer", own=422, form={"write": "all", "content": " "}),
    f"GET {_LIST}/members": Call(404, "members"),
    f"GET {_LIST}/members/new": Call(404, "edit"),
    f"POST {_LIST}/members/new": Call(
        404, "edit", own=303, form={"email": "added.{as_whom}@example.com"}
    ),
    f"GET {_MEMBER}": Call(404, "members"),
    f"POST {_MEMBER}": Call(404, "edit", own=303, form={"name": "By a form", "type": "gold"}),
    f"POST {_MEMBER}/email": Call(404, "edit", own=303, form={"enabled": "no"}),
    f"POST {_MEMBER}/engagement": Call(404, "edit", own=303, form={}),
    f"GET {_MEMBER}/remove": Call(404, "edit"),
    f"POST {_MEMBER}/remove": Call(404, "edit", own=303, values=_LEAVING),
    f"POST {_MEMBER}/move": Call(
        404, "edit", own=303, form={"list": "{dst_list_id}"}, values=_MOVING
    ),
    f"GET {_LIST}/segments": Call(404, "figures"),
    f"GET {_LIST}/segments/new": Call(404, "edit"),
    f"POST {_LIST}/segments/new": Call(404, "edit", own=422, form={"filter": _FILTER}),
    f"GET {_LIST}/segments/{{segment_id}}": Call(404, "figures"),
    f"POST {_LIST}/segments/{{segment_id}}": Call(404, "edit", own=422, form={"filter": _FILTER}),
    f"GET {_LIST}/segments/{{segment_id}}/changes": Call(404, "members"),
    f"POST {_LIST}/segments/{{segment_id}}/watch": Call(
        404, "edit", own=303, form={"time_zone": "UTC", "hour": "7"}
    ),
    f"GET {_LIST}/tags": Call(404, "figures"),
    f"GET {_LIST}/tags/{{tag_id}}": Call(404, "edit"),
    f"POST {_LIST}/tags/{{tag_id}}": Call(404, "edit", own=303, form={"name": "{mark}"}),
    f"GET {_LIST}/bulk-actions": Call(404, "figures"),
    f"GET {_LIST}/bulk-actions/new": Call(404, "edit"),
    f"POST {_LIST}/bulk-actions/new": Call(
        404, "edit", own=303, form={"action": "tag", "tag_name": "{mark}", "filter": _FILTER}
    ),
    f"GET {_LIST}/bulk-actions/{{bulk_id}}": Call(404, "figures"),
    f"POST {_LIST}/bulk-actions/{{bulk_id}}/cancel": Call(404, "edit", own=303),
    "GET /console/fields": Call(200, "figures"),
    "GET /console/fields/new": Call(200, "edit"),
    "POST /console/fields/new": Call(
        303, "edit", own=303, form={"key": "f{order_id}", "label": "By a form", "type": "text"}
    ),
    "GET /console/fields/{field_id}": Call(404, "edit"),
    "POST /console/fields/{field_id}": Call(404, "edit", own=422),
    "GET /console/credits": Call(200, "money.read"),
    "GET /console/credits/buy": Call(200, "money"),
    "POST /console/credits/buy": Call(422, "money", own=422, form={}),
    "POST /console/credits/low-balance": Call(303, "money", own=303, form={"below_credit": "50"}),
    "GET /console/credits/orders": Call(200, "money.read"),
    "GET /console/credits/orders/{order_id}": Call(404, "money.read"),
    "GET /console/credits/orders/{order_id}/receipt": Call(404, "money.read", values=_PAID),
    "GET /console/credits/returned": Call(
        303, "money.read", own=303, query={"order_id": "{order_id}"}
    ),
    "GET /console/developers": Call(200, "access"),
    "GET /console/developers/keys": Call(200, "access"),
    "GET /console/developers/keys/new": Call(200, "access"),
    "POST /console/developers/keys/new": Call(422, "access", own=422, form={"reach": "chosen"}),
    "GET /console/developers/keys/{key_id}/end": Call(404, "access"),
    "GET /console/developers/keys/{key_id}/requests": Call(404, "access"),
    "GET /console/developers/access": Call(200, "any"),
    f"GET {_SENDERS}": Call(200, "access"),
    f"GET {_SENDERS}/new": Call(200, "access"),
    f"POST {_SENDERS}/new": Call(422, "access", own=422, form={"provider": "generic"}),
    f"GET {_SENDER}": Call(404, "access"),
    f"GET {_SENDER}/try": Call(404, "access"),
    f"POST {_SENDER}/try": Call(404, "access", own=422, form={"body": "x"}),
    f"GET {_SENDER}/rotate": Call(404, "access"),
    f"POST {_SENDER}/rotate": Call(404, "access"),
    f"GET {_SENDER}/end": Call(404, "access"),
    f"GET {_HOOKS}": Call(200, "access"),
    f"GET {_HOOKS}/new": Call(200, "access"),
    f"POST {_HOOKS}/new": Call(422, "access", own=422, form={"url": "http://127.0.0.1:9/"}),
    f"GET {_HOOK}": Call(404, "access"),
    f"GET {_HOOK}/change": Call(404, "access"),
    f"POST {_HOOK}/change": Call(404, "access", own=422, form={"url": ""}),
    f"GET {_HOOK}/state": Call(404, "access", own=303),
    f"POST {_HOOK}/state": Call(404, "access", own=303, form={"state": "paused"}),
    f"GET {_HOOK}/rotate": Call(404, "access"),
    f"POST {_HOOK}/rotate": Call(404, "access"),
    f"GET {_HOOK}/end": Call(404, "access"),
    f"GET {_HOOK}/deliveries/{{delivery_id}}": Call(404, "access"),
    # The owner has paused this webhook endpoint, so a test event, a retry, a resend or a replay
    # gets status 409.
    f"POST {_HOOK}/test": Call(404, "access", own=409),
    f"POST {_HOOK}/retry": Call(404, "access", own=409),
    f"POST {_HOOK}/deliveries/{{delivery_id}}/resend": Call(404, "access", own=409),
    f"GET {_HOOK}/replay": Call(404, "access", query={"day": "2026-11-20"}),
    f"POST {_HOOK}/replay": Call(404, "access", own=409, form={"day": "2026-11-20"}),
    "GET /console/developers/feed": Call(200, "kind"),
    "GET /console/developers/access/{grant_id}/end": Call(404, "any"),
    # Only operators may open the following pages. Users who aren't operators get status 404.
    f"GET {_OPERATORS}": _HIDDEN,
    f"GET {_OPERATORS}/texts": _HIDDEN,
    f"POST {_OPERATORS}/texts": replace(_HIDDEN, form={"kind": "list", "id": "1"}),
    f"GET {_OPERATORS}/users": _HIDDEN,
    f"GET {_OPERATORS}/users/{{user_id}}": _HIDDEN,
    f"POST {_OPERATORS}/users/{{user_id}}": replace(_HIDDEN, form={"plan": "paid"}),
    f"GET {_OPERATORS}/orders": _HIDDEN,
    f"GET {_OPERATORS}/orders/{{order_id}}": _HIDDEN,
    f"POST {_OPERATORS}/orders/{{order_id}}": replace(_HIDDEN, form={"resolution": "credit"}),
    f"GET {_OPERATORS}/jobs": _HIDDEN,
    f"GET {_OPERATORS}/jobs/{{job_id}}": _HIDDEN,
    f"POST {_OPERATORS}/jobs/{{job_id}}": replace(_HIDDEN, form={"act": "cancel"}),
    f"GET {_OPERATORS}/maintenance": _HIDDEN,
    f"POST {_OPERATORS}/maintenance": replace(_HIDDEN, form={"name": "maintenance.purge"}),
    # Requests that delete data come last, because the tests send the requests in the order of
    # CONSOLE_CALLS.
    f"POST {_IMPORT}/undo": Call(404, "edit", own=303, form={}),
    f"POST {_IMAGE}/delete": Call(404, "images", own=303, form={}),
    f"POST {_LIST}/bulk-actions/{{bulk_id}}/undo": Call(404, "edit", own=303),
    f"POST {_LIST}/tags/{{tag_id}}/delete": Call(404, "edit", own=303),
    f"POST {_LIST}/segments/{{segment_id}}/delete": Call(404, "edit", own=303),
    "POST /console/fields/{field_id}/retire": Call(404, "edit", own=303),
    f"POST {_LIST}/archive": Call(404, "close", own=303, values=_CLOSING),
    "POST /console/developers/keys/{key_id}/end": Call(404, "access", own=303),
    "POST /console/developers/access/{grant_id}/end": Call(404, "any", own=303),
    f"POST {_HOOK}/end": Call(404, "access", own=303),
    f"POST {_SENDER}/end": Call(404, "access", own=303),
}
