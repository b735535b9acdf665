"""A member's history and consent in words."""

from collections.abc import Mapping
from typing import Any

from models import SubscriptionEvent
from services.subscriptions.consent.evidence import ConsentEvidence
from services.subscriptions.consent.networks import MAX_COUNTED_PEOPLE

_ACTIONS = {
    "requested": "Asked to subscribe",
    "subscribed": "Subscribed",
    "added": "Added",
    "confirmed": "Confirmed by the mailed link",
    "unsubscribed": "Left the list",
    "unsubscribing_undone": "Came back",
    "email_enabled": "Mail switched on",
    "email_disabled": "Mail switched off",
    "removed": "Removed",
    "edited": "Changed",
    "transferred_in": "Moved here from another list",
    "transferred_away": "Moved to another list",
    "imported": "Imported",
    "import_undone": "An import was undone",
    "bulk_undone": "A bulk action was undone",
    "lapsed": "Never confirmed, and lapsed",
    "erased": "Erased",
}
_ACTORS = {
    "user": "by the person",
    "owner": "by you",
    "import": "by an import of yours",
    "operator": "by the operator",
    "stranger": "by a sign-up form",
}
_VIAS = {
    "one-click": "with their mail app’s button",
    "page": "on the page that mails lead to",
    "trace": "by an app, with the mail’s trace id",
    "bulk": "by a bulk action",
}
_CHANGED = {
    "name": "name",
    "email": "address",
    "type": "tier",
    "paid_expiry": "end of the tier",
    "tags": "tags",
}
_HOWS = {
    "form": "Filled in a sign-up form",
    "confirmation": "Confirmed by the mailed link",
    "login": "Subscribed while logged in",
    "link": "Came back by a link in a mail",
    "owner": "Was added by you",
    "import": "Came in a file",
    "transfer": "Was moved from another list of yours",
}
# The source of a claim, unless it is the product that the file came from.
_CLAIMS = {"owner": "as you say", "file": "says the file"}


def history_line(event: SubscriptionEvent) -> dict[str, Any]:
    changed = [_CHANGED.get(name, name.removeprefix("fields.")) for name in event.changed or ()]
    text = _ACTIONS.get(event.action, event.action)
    if changed:
        text += f": {', '.join(changed)}"
    # Such as "by you, by a bulk action".
    origin = (_ACTORS.get(event.actor, event.actor), _VIAS.get(event.via), event.ip)
    return {
        "text": text,
        "origin": ", ".join(filter(None, origin)),
        "occurred_at": event.created_at,
    }


def consent_words(shown: ConsentEvidence) -> str:
    words = _HOWS.get(shown.how, shown.how)
    if shown.claimed_by is None:
        return words if shown.confirmed else f"{words}; not confirmed by the person"
    claim = _CLAIMS.get(shown.claimed_by, f"says {shown.claimed_by}")
    return f"{words}, {claim}"


def others_words(shown: ConsentEvidence, others: Mapping[str, int]) -> str:
    count = 0 if shown.claimed_by or shown.ip is None else others.get(shown.ip, 0)
    if not count:
        return ""
    number = f"{count:,} or more" if count == MAX_COUNTED_PEOPLE else f"{count:,}"
    return f" ({number} other {'person' if count == 1 else 'people'} came from its network)"
