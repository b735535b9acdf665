"""Describes the state, the timeline and the origin of a member for pages of the console."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from api.console.console_display import LEFT_REASONS, ORIGINS, format_day
from api.schemas.subscriptions import SignUpOrigin, SubscriptionRecord
from core import clock
from models import SubscriptionEvent, SubscriptionStatus, Tier
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
    "engagement_allowed": "Allowed recording opens and clicks",
    "engagement_refused": "Refused recording opens and clicks",
}
# The actions that are stored together with a consent.
_CONSENTING_ACTIONS = frozenset(
    {
        "requested",
        "subscribed",
        "added",
        "confirmed",
        "unsubscribing_undone",
        "transferred_in",
        "imported",
        "engagement_allowed",
    }
)
# The maximum time between an action and the consent that was stored together with it.
_MAX_CONSENT_GAP = timedelta(seconds=2)
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
ATTRIBUTE_LABELS = {
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
_ENGAGEMENT_CONSENT_LABELS = {
    "form": "Ticked the box of a sign-up form",
    "login": "Said yes while logged in",
    "link": "Said yes with a link in an e-mail",
}
# Labels for the sources of claimed consent. A source without a label is the name of the newsletter
# software that exported the members.
_CLAIM_LABELS = {"owner": "your statement", "file": "stated in the file"}


# Maps the status code of a hard bounce (RFC 3463) to its cause.
_BOUNCE_CAUSES = {
    "5.1.1": "the address doesn’t exist",
    "5.1.2": "the domain of the address doesn’t exist",
    "5.1.3": "the address is invalid",
    "5.1.6": "the mailbox has moved",
    "5.1.10": "the domain of the address accepts no mail",
    "5.2.1": "the mailbox is disabled",
}
# Maps each reason why a member gets no mail to a label.
_EMAIL_OFF_LABELS = {
    "bounced": "off after a hard bounce",
    "soft_bounced": "off after several soft bounces",
    "person": "off by the member",
    "owner": "off by you",
}
_STATUS_SENTENCES = {
    "pending": "Hasn’t confirmed the sign-up yet, and gets no mail until then.",
    "unsubscribed": "Unsubscribed, and gets no mail from this list. Only they can subscribe again.",
    "removed": "Removed from this list, and gets no mail.",
}
_STATUS_MARKS = {
    "pending": ("warn", "not confirmed"),
    "unsubscribed": ("", "unsubscribed"),
    "removed": ("", "removed"),
}


class Mark(NamedTuple):
    """Words about a member, and the colour: ``good``, ``warn``, ``bad`` or an empty text."""

    kind: str
    text: str


def describe_marks(row: Mapping[str, Any]) -> list[Mark]:
    """Return a mark for each unusual status, mail setting or tier of a member in a table."""
    marks = []
    if row["status"] in _STATUS_MARKS:
        marks.append(Mark(*_STATUS_MARKS[row["status"]]))
    elif not row["email_enabled"]:
        has_bounced = row["email_off"] is not None and "bounced" in row["email_off"].reason
        marks.append(Mark("bad", "bounced") if has_bounced else Mark("warn", "mail off"))
    if row["type"] != Tier.FREE:
        is_paid = row["paid_expiry"] is None or row["paid_expiry"] > clock.now()
        marks.append(Mark("good", f"paid, {row['type']}") if is_paid else Mark("", "tier expired"))
    return marks


def describe_state(record: SubscriptionRecord) -> Mark:
    """Return one sentence about whether the member gets mail, and why not."""
    if record.email is None:
        return Mark("", "Erased, with the name, the address and all details.")
    if record.status in _STATUS_SENTENCES:
        return Mark(_STATUS_MARKS[record.status][0], _STATUS_SENTENCES[record.status])
    email_off = record.email_off
    if email_off is None:
        return Mark("good", "Gets mail.")
    text = f"Gets no mail: {_EMAIL_OFF_LABELS[email_off.reason]}"
    if email_off.status:
        text += f" ({email_off.status})"
    if cause := _BOUNCE_CAUSES.get(email_off.status or ""):
        text += f", because {cause}"
    return Mark("bad" if "bounced" in email_off.reason else "warn", f"{text}.")


def describe_origin(origin: SignUpOrigin | None) -> list[tuple[str, str]]:
    """Return the labels and values of a member's origin, without unknown values."""
    values = {} if origin is None else origin.model_dump()
    return [(ORIGINS[name], value) for name, value in values.items() if value]


def describe_engagement(record: SubscriptionRecord) -> list[tuple[str, str]]:
    """Return the labels and values of a member's engagement."""
    engagement = record.engagement
    if engagement is None:
        return []
    values = [
        ("Delivered", engagement.delivered, engagement.last_delivered),
        ("Opened", engagement.opens, engagement.last_opened),
        ("Opened by machines", engagement.machine_opens, engagement.last_machine_opened),
        ("Clicked", engagement.clicks, engagement.last_clicked),
        ("Soft bounces in a row", engagement.bounces, engagement.last_bounced),
    ]
    return [
        ("Measured since", format_day(engagement.measured_since)),
        *(
            (label, f"{count:,}" + (f", last on {format_day(day)}" if day else ""))
            for label, count, day in values
        ),
    ]


@dataclass(frozen=True)
class TimelineEntry:
    """A change of a member, a consent, or both if they were stored together.

    Attributes:
        kind: the kind of the entry's mark, as in ``Mark``.
        text: the change, or an empty text if the entry is only a consent.
        hint: the actor and the channel of the change.
        may_consent: whether a consent can be stored together with the change.
        subject: what the consent is about.
        consent: the consent in words, or an empty text if the entry is only a change.
        consent_hint: the network, browser and page of the consent.
    """

    at: datetime
    kind: str = ""
    text: str = ""
    hint: str = ""
    may_consent: bool = False
    subject: str = ""
    mailing_id: int | None = None
    consent: str = ""
    consent_hint: str = ""
    wording: str | None = None


def describe_event(event: SubscriptionEvent, field_labels: Mapping[str, str]) -> TimelineEntry:
    changed = [
        ATTRIBUTE_LABELS.get(name) or field_labels.get(key, key)
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
    return TimelineEntry(
        at=event.created_at,
        kind=_find_kind(event),
        text=text,
        hint=" ".join(filter(None, origin)) + network,
        may_consent=event.action in _CONSENTING_ACTIONS,
        mailing_id=event.mailing_id,
    )


def _find_kind(event: SubscriptionEvent) -> str:
    before, after = (
        (status == SubscriptionStatus.ACTIVE) and has_mail is not False
        for status, has_mail in (
            (event.status_before, event.email_enabled_before),
            (event.status_after, event.email_enabled_after),
        )
    )
    if before == after:
        return ""
    return "good" if after else "warn"


def describe_consent(evidence: ConsentEvidence, others: Mapping[str, int]) -> TimelineEntry:
    """Describe a consent, with the number of other people who signed up from the same network."""
    labels = _CONSENT_LABELS | (_ENGAGEMENT_CONSENT_LABELS if evidence.engagement else {})
    text = labels.get(evidence.how, evidence.how)
    if evidence.claimed_by is not None:
        claim = _CLAIM_LABELS.get(evidence.claimed_by, f"stated by {evidence.claimed_by}")
        text += f" ({claim})"
    elif not evidence.confirmed:
        text += " (not confirmed by the person)"
    network = f"{evidence.ip}{_describe_network(evidence, others)}" if evidence.ip else None
    page = f"on {evidence.url}" if evidence.url else None
    return TimelineEntry(
        at=evidence.occurred_at,
        subject="Opens and clicks" if evidence.engagement else "Consent",
        consent=text,
        consent_hint=", ".join(filter(None, (network, evidence.browser, page))),
        wording=evidence.wording,
    )


def _describe_network(evidence: ConsentEvidence, others: Mapping[str, int]) -> str:
    count = 0 if evidence.claimed_by or evidence.ip is None else others.get(evidence.ip, 0)
    if not count:
        return ""
    number = f"{count:,} or more" if count == MAX_COUNTED_PEOPLE else f"{count:,}"
    return f" ({number} other {'person' if count == 1 else 'people'} signed up from this network)"


def merge_timeline(
    changes: Sequence[TimelineEntry], consents: Sequence[TimelineEntry], limit: int
) -> tuple[list[TimelineEntry], int, int]:
    """Merge changes and consents, newest first.

    Return at most ``limit`` entries, and the numbers of merged changes and merged consents.
    """
    timeline: list[TimelineEntry] = []
    change_count = consent_count = 0
    while len(timeline) < limit:
        change = next(iter(changes[change_count:]), None)
        consent = next(iter(consents[consent_count:]), None)
        if change and consent and _belong_together(change, consent):
            timeline.append(
                replace(
                    change,
                    subject=consent.subject,
                    consent=consent.consent,
                    consent_hint=consent.consent_hint,
                    wording=consent.wording,
                )
            )
            change_count += 1
            consent_count += 1
        elif change and (consent is None or change.at >= consent.at):
            timeline.append(change)
            change_count += 1
        elif consent:
            timeline.append(consent)
            consent_count += 1
        else:
            break
    return timeline, change_count, consent_count


def _belong_together(change: TimelineEntry, consent: TimelineEntry) -> bool:
    return change.may_consent and abs(change.at - consent.at) <= _MAX_CONSENT_GAP
