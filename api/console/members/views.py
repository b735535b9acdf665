"""Describes the history and the consent of a member for pages of the console."""

from collections.abc import Mapping
from typing import Any

from models import SubscriptionEvent
from services.subscriptions.consent.evidence import ConsentEvidence
from services.subscriptions.consent.networks import MAX_COUNTED_PEOPLE

_ACTION_LABELS = {
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
_ACTOR_LABELS = {
    "user": "by the person",
    "owner": "by you",
    "import": "by an import of yours",
    "operator": "by the operator",
    "stranger": "by a sign-up form",
}
_VIA_LABELS = {
    "one-click": "with their mail app’s button",
    "page": "on the page that mails lead to",
    "trace": "by an app, with the mail’s trace id",
    "bulk": "by a bulk action",
}
_ATTRIBUTE_LABELS = {
    "name": "name",
    "email": "address",
    "type": "tier",
    "paid_expiry": "end of the tier",
    "tags": "tags",
}
_CONSENT_LABELS = {
    "form": "Filled in a sign-up form",
    "confirmation": "Confirmed by the mailed link",
    "login": "Subscribed while logged in",
    "link": "Came back by a link in a mail",
    "owner": "Was added by you",
    "import": "Came in a file",
    "transfer": "Was moved from another list of yours",
}
# Labels for the sources of claimed consent. A source without a label is the name of the newsletter
# software that exported the members.
_CLAIM_LABELS = {"owner": "as you say", "file": "says the file"}


def describe_event(event: SubscriptionEvent) -> dict[str, Any]:
    changed = [
        _ATTRIBUTE_LABELS.get(name, name.removeprefix("fields.")) for name in event.changed or ()
    ]
    text = _ACTION_LABELS.get(event.action, event.action)
    if changed:
        text += f": {', '.join(changed)}"
    # The origin of a change, such as "by you, by a bulk action".
    origin = (_ACTOR_LABELS.get(event.actor, event.actor), _VIA_LABELS.get(event.via), event.ip)
    return {
        "text": text,
        "origin": ", ".join(filter(None, origin)),
        "occurred_at": event.created_at,
    }


def describe_consent(evidence: ConsentEvidence) -> str:
    text = _CONSENT_LABELS.get(evidence.how, evidence.how)
    if evidence.claimed_by is None:
        return text if evidence.confirmed else f"{text}; not confirmed by the person"
    claim = _CLAIM_LABELS.get(evidence.claimed_by, f"says {evidence.claimed_by}")
    return f"{text}, {claim}"


def describe_network(evidence: ConsentEvidence, others: Mapping[str, int]) -> str:
    count = 0 if evidence.claimed_by or evidence.ip is None else others.get(evidence.ip, 0)
    if not count:
        return ""
    number = f"{count:,} or more" if count == MAX_COUNTED_PEOPLE else f"{count:,}"
    return f" ({number} other {'person' if count == 1 else 'people'} came from its network)"
