"""Describes the history, the consent and the origin of a member for pages of the console."""

from collections.abc import Mapping
from typing import Any

from api.console.console_display import LEFT_REASONS, ORIGINS
from api.schemas.subscriptions import EmailOff, SignUpOrigin
from models import SubscriptionEvent
from services.subscriptions.consent.evidence import ConsentEvidence
from services.subscriptions.consent.networks import MAX_COUNTED_PEOPLE

_ACTION_LABELS = {
    "requested": "Signed up",
    "subscribed": "Subscribed",
    "added": "Added",
    "confirmed": "Confirmed with the link in the e-mail",
    "unsubscribed": "Unsubscribed",
    "complained": "Complained about spam",
    "unsubscribing_undone": "Subscribed again",
    "email_enabled": "Mail turned on",
    "email_disabled": "Mail turned off",
    "removed": "Removed",
    "edited": "Edited",
    "transferred_in": "Moved here from another list",
    "transferred_away": "Moved to another list",
    "imported": "Imported",
    "import_undone": "Import undone",
    "bulk_undone": "Bulk action undone",
    "lapsed": "Sign-up expired without confirmation",
    "bounced": "Mail turned off after a hard bounce",
    "soft_bounced": "Mail turned off after several soft bounces",
    "erased": "Erased",
}
# Imported files of bounces and complaints unsubscribe people.
_IMPORTED_LABELS = {
    "bounced": "Unsubscribed, because a mail bounced",
    "complained": "Unsubscribed after a complaint about spam",
}
_ACTOR_LABELS = {
    "user": "by the member",
    "owner": "by you",
    "import": "by your import",
    "operator": "by the operator",
    "stranger": "with a sign-up form",
    "sender": "reported by your mail service",
}
_VIA_LABELS = {
    "one-click": "with the unsubscribe button of a mail app",
    "page": "on the page that the e-mail links to",
    "trace": "with a link in one of your e-mails",
    "bulk": "with a bulk action",
}
_ATTRIBUTE_LABELS = {
    "name": "name",
    "email": "address",
    "type": "tier",
    "paid_expiry": "end date of the tier",
    "tags": "tags",
}
_CONSENT_LABELS = {
    "form": "Submitted a sign-up form",
    "confirmation": "Confirmed with the link in the e-mail",
    "login": "Subscribed while logged in",
    "link": "Subscribed again with a link in an e-mail",
    "owner": "Added by you",
    "import": "Imported from a file",
    "transfer": "Moved from another of your lists",
}
# Labels for the sources of claimed consent. A source without a label is the name of the newsletter
# software that exported the members.
_CLAIM_LABELS = {"owner": "your statement", "file": "stated in the file"}


# Maps each reason why a member gets no mail to a label.
_EMAIL_OFF_LABELS = {
    "bounced": "off after a hard bounce",
    "soft_bounced": "off after several soft bounces",
    "person": "off by the member",
    "owner": "off",
}


def describe_mail(email_off: EmailOff | None) -> str:
    """Return "on" if a member gets mail, or else the reason why the member gets no mail."""
    if email_off is None:
        return "on"
    label = _EMAIL_OFF_LABELS[email_off.reason]
    return label if email_off.status is None else f"{label} ({email_off.status})"


def describe_origin(origin: SignUpOrigin | None) -> list[tuple[str, str]]:
    """Return the labels and values of a member's origin, without unknown values."""
    values = {} if origin is None else origin.model_dump()
    return [(ORIGINS[name], value) for name, value in values.items() if value]


def describe_event(event: SubscriptionEvent, field_labels: Mapping[str, str]) -> dict[str, Any]:
    changed = [
        _ATTRIBUTE_LABELS.get(name) or field_labels.get(key, key)
        for name in event.changed or ()
        for key in [name.removeprefix("fields.")]
    ]
    labels = _IMPORTED_LABELS if event.actor == "import" else _ACTION_LABELS
    text = labels.get(event.action) or _ACTION_LABELS.get(event.action, event.action)
    if changed:
        text += f": {', '.join(changed)}"
    if event.reason:
        text += f": {LEFT_REASONS.get(event.reason, event.reason)}"
    # The origin of a change, such as "by you with a bulk action".
    origin = (_ACTOR_LABELS.get(event.actor, event.actor), _VIA_LABELS.get(event.via))
    network = f", IP address {event.ip}" if event.ip else ""
    return {
        "text": text,
        "origin": " ".join(filter(None, origin)) + network,
        "occurred_at": event.created_at,
        "mailing_id": event.mailing_id,
    }


def describe_consent(evidence: ConsentEvidence) -> str:
    text = _CONSENT_LABELS.get(evidence.how, evidence.how)
    if evidence.claimed_by is None:
        return text if evidence.confirmed else f"{text} (not confirmed by the person)"
    claim = _CLAIM_LABELS.get(evidence.claimed_by, f"stated by {evidence.claimed_by}")
    return f"{text} ({claim})"


def describe_network(evidence: ConsentEvidence, others: Mapping[str, int]) -> str:
    count = 0 if evidence.claimed_by or evidence.ip is None else others.get(evidence.ip, 0)
    if not count:
        return ""
    number = f"{count:,} or more" if count == MAX_COUNTED_PEOPLE else f"{count:,}"
    return f" ({number} other {'person' if count == 1 else 'people'} signed up from this network)"
