"""Builds the events that mail providers report, such as bounces, in the format of each provider.

Each event has the fields that its provider documents, and concerns a mail to one recipient.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field

Fields = dict[str, Any]

# Personal data in the events: the mail's subject, a link, an IP address and user agents. Pressroom
# must not store these data.
_SUBJECT = "Your letter"
_LINK = "https://example.com/article"
_IP_ADDRESS = "192.0.2.7"
_USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_PROXY_AGENT = "Mozilla/5.0"


class EventKind(StrEnum):
    """``accepted`` means that the provider has accepted the mail for sending. Pressroom ignores
    events of the kind ``accepted``.
    """

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    OPENED = "opened"
    OPENED_BY_MACHINE = "opened_by_machine"
    CLICKED = "clicked"
    HARD_BOUNCE = "hard_bounce"
    SOFT_BOUNCE = "soft_bounce"
    BLOCKED = "blocked"
    COMPLAINED = "complained"
    UNSUBSCRIBED = "unsubscribed"


class ProviderName(StrEnum):
    GENERIC = "generic"
    SES = "ses"
    POSTMARK = "postmark"
    MAILGUN = "mailgun"
    SENDGRID = "sendgrid"
    BREVO = "brevo"
    RESEND = "resend"


class MailEvent(BaseModel):
    kind: EventKind
    email: str = "ada@example.org"
    delivery_id: str | None = None
    message_id: str = "sandbox-1"
    occurred_at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))

    @property
    def bounce_status_and_reply(self) -> tuple[str, str]:
        """Return the enhanced status code of a bounce, and the reply of the recipient's server."""
        match self.kind:
            case EventKind.SOFT_BOUNCE:
                return "4.2.2", "452 4.2.2 The mailbox is full"
            case EventKind.BLOCKED:
                return "5.7.1", "550 5.7.1 Rejected by policy"
        return "5.1.1", "550 5.1.1 There is no such mailbox"

    @property
    def user_agent(self) -> str:
        is_machine = self.kind is EventKind.OPENED_BY_MACHINE
        return _PROXY_AGENT if is_machine else _USER_AGENT

    @property
    def iso_time(self) -> str:
        moment = self.occurred_at.astimezone(UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def build_generic_event(event: MailEvent) -> Fields:
    kinds = {
        EventKind.OPENED_BY_MACHINE: "opened",
        EventKind.HARD_BOUNCE: "bounced",
        EventKind.SOFT_BOUNCE: "bounced",
        EventKind.BLOCKED: "bounced",
        # Pressroom's own report format has no kind ``accepted``, so report the mail as delivered.
        EventKind.ACCEPTED: "delivered",
    }
    kind = kinds.get(event.kind, str(event.kind))
    report = {"kind": kind, "occurred_at": event.iso_time, "message_id": event.message_id}
    report |= {"delivery_id": event.delivery_id} if event.delivery_id else {"email": event.email}
    if kind == "bounced":
        classes = {EventKind.HARD_BOUNCE: "hard", EventKind.SOFT_BOUNCE: "soft"}
        bounce_class = classes.get(event.kind, "blocked")
        return report | {
            "bounce": {"class": bounce_class, "status": event.bounce_status_and_reply[0]}
        }
    if event.kind is EventKind.OPENED_BY_MACHINE:
        return report | {"machine": True}
    return report


def build_ses_event(event: MailEvent) -> Fields:
    recipients = [{"emailAddress": event.email}]
    status, text = event.bounce_status_and_reply
    bounced = [{**recipients[0], "action": "failed", "status": status, "diagnosticCode": text}]
    bounce = {"bounceSubType": "General", "bouncedRecipients": bounced}
    agent = {"ipAddress": _IP_ADDRESS, "userAgent": event.user_agent}
    descriptions: dict[EventKind, tuple[str, Fields]] = {
        EventKind.ACCEPTED: ("Send", {}),
        EventKind.DELIVERED: ("Delivery", {"recipients": [event.email]}),
        EventKind.OPENED: ("Open", agent),
        EventKind.OPENED_BY_MACHINE: ("Open", agent),
        EventKind.CLICKED: ("Click", {**agent, "link": _LINK}),
        EventKind.HARD_BOUNCE: ("Bounce", {**bounce, "bounceType": "Permanent"}),
        EventKind.SOFT_BOUNCE: ("Bounce", {**bounce, "bounceType": "Transient"}),
        # SES reports a bounce as permanent even if its cause is a policy of the recipient's server.
        EventKind.BLOCKED: ("Bounce", {**bounce, "bounceType": "Permanent"}),
        EventKind.COMPLAINED: (
            "Complaint",
            {"complainedRecipients": recipients, "complaintFeedbackType": "abuse"},
        ),
        EventKind.UNSUBSCRIBED: (
            "Subscription",
            {
                "source": "UnsubscribeHeader",
                "oldTopicPreferences": {"unsubscribeAll": False},
                "newTopicPreferences": {"unsubscribeAll": True},
            },
        ),
    }
    name, details = descriptions[event.kind]
    tags = {"ses:configuration-set": ["sandbox"]}
    if event.delivery_id:
        tags["delivery_id"] = [event.delivery_id]
    mail = {
        "timestamp": event.iso_time,
        "messageId": event.message_id,
        "source": "letters@example.com",
        "destination": [event.email],
        "headers": [{"name": "Subject", "value": _SUBJECT}],
        "tags": tags,
    }
    return {
        "eventType": name,
        "mail": mail,
        name.lower(): {**details, "timestamp": event.iso_time},
    }


def build_postmark_event(event: MailEvent) -> Fields:
    bounce = {
        "Email": event.email,
        "BouncedAt": event.iso_time,
        "Details": event.bounce_status_and_reply[1],
    }
    action = {
        "Recipient": event.email,
        "ReceivedAt": event.iso_time,
        "UserAgent": event.user_agent,
        "Geo": {"IP": _IP_ADDRESS},
    }
    change = {
        "Recipient": event.email,
        "ChangedAt": event.iso_time,
        "SuppressSending": True,
        "SuppressionReason": "ManualSuppression",
    }
    descriptions: dict[EventKind, tuple[str, Fields]] = {
        EventKind.ACCEPTED: ("Inbound", {}),
        EventKind.DELIVERED: (
            "Delivery",
            {"Recipient": event.email, "DeliveredAt": event.iso_time},
        ),
        EventKind.OPENED: ("Open", action),
        EventKind.OPENED_BY_MACHINE: ("Open", action),
        EventKind.CLICKED: ("Click", {**action, "OriginalLink": _LINK}),
        EventKind.HARD_BOUNCE: ("Bounce", {**bounce, "Type": "HardBounce"}),
        EventKind.SOFT_BOUNCE: ("Bounce", {**bounce, "Type": "SoftBounce"}),
        EventKind.BLOCKED: ("Bounce", {**bounce, "Type": "Blocked"}),
        EventKind.COMPLAINED: ("SpamComplaint", {**bounce, "Type": "SpamComplaint"}),
        EventKind.UNSUBSCRIBED: ("SubscriptionChange", change),
    }
    record_type, fields = descriptions[event.kind]
    metadata = {"delivery_id": event.delivery_id} if event.delivery_id else {}
    return {
        "RecordType": record_type,
        "MessageID": event.message_id,
        "Subject": _SUBJECT,
        "Metadata": metadata,
        **fields,
    }


def build_mailgun_event(event: MailEvent) -> Fields:
    """Return an event without Mailgun's signature, which ``ProviderKeys`` adds."""
    status, text = event.bounce_status_and_reply
    outcome = {"delivery-status": {"enhanced-code": status, "message": text}}
    bot = "apple" if event.kind is EventKind.OPENED_BY_MACHINE else ""
    client = {"client-info": {"user-agent": _USER_AGENT, "bot": bot}, "ip": _IP_ADDRESS}
    descriptions: dict[EventKind, tuple[str, Fields]] = {
        EventKind.ACCEPTED: ("accepted", {}),
        EventKind.DELIVERED: ("delivered", {}),
        EventKind.OPENED: ("opened", client),
        EventKind.OPENED_BY_MACHINE: ("opened", client),
        EventKind.CLICKED: ("clicked", {**client, "url": _LINK}),
        EventKind.HARD_BOUNCE: (
            "failed",
            {**outcome, "severity": "permanent", "reason": "bounce"},
        ),
        EventKind.SOFT_BOUNCE: (
            "failed",
            {**outcome, "severity": "temporary", "reason": "generic"},
        ),
        EventKind.BLOCKED: (
            "failed",
            {**outcome, "severity": "permanent", "reason": "espblock"},
        ),
        EventKind.COMPLAINED: ("complained", {}),
        EventKind.UNSUBSCRIBED: ("unsubscribed", client),
    }
    name, fields = descriptions[event.kind]
    data = {
        "event": name,
        "timestamp": event.occurred_at.timestamp(),
        "recipient": event.email,
        "message": {"headers": {"message-id": event.message_id, "subject": _SUBJECT}},
        "user-variables": {"delivery_id": event.delivery_id} if event.delivery_id else {},
        **fields,
    }
    return {"event-data": data}


def build_sendgrid_event(event: MailEvent) -> Fields:
    status, text = event.bounce_status_and_reply
    action = {"useragent": _USER_AGENT, "ip": _IP_ADDRESS}
    descriptions: dict[EventKind, tuple[str, Fields]] = {
        EventKind.ACCEPTED: ("processed", {}),
        EventKind.DELIVERED: ("delivered", {"response": "250 OK"}),
        EventKind.OPENED: ("open", {**action, "sg_machine_open": False}),
        EventKind.OPENED_BY_MACHINE: ("open", {**action, "sg_machine_open": True}),
        EventKind.CLICKED: ("click", {**action, "url": _LINK}),
        EventKind.HARD_BOUNCE: ("bounce", {"type": "bounce", "status": status, "reason": text}),
        EventKind.SOFT_BOUNCE: ("bounce", {"type": "blocked", "status": status, "reason": text}),
        EventKind.BLOCKED: ("dropped", {"reason": "Recipient List over Package Quota"}),
        EventKind.COMPLAINED: ("spamreport", {}),
        EventKind.UNSUBSCRIBED: ("unsubscribe", {}),
    }
    name, fields = descriptions[event.kind]
    event_id = base64.b64encode(f"{event.message_id}-{event.kind}".encode()).decode()
    custom_arguments = {"delivery_id": event.delivery_id} if event.delivery_id else {}
    return {
        "event": name,
        "email": event.email,
        "timestamp": int(event.occurred_at.timestamp()),
        "sg_event_id": event_id,
        "sg_message_id": event.message_id,
        **fields,
        **custom_arguments,
    }


def build_brevo_event(event: MailEvent) -> Fields:
    names = {
        EventKind.ACCEPTED: "request",
        EventKind.OPENED_BY_MACHINE: "proxy_open",
        EventKind.CLICKED: "click",
        EventKind.COMPLAINED: "spam",
    }
    seconds = int(event.occurred_at.timestamp())
    fields = {
        "event": names.get(event.kind, str(event.kind)),
        "email": event.email,
        "id": 1,
        # Brevo writes ``date``, ``ts`` and ``ts_event`` in the unknown time zone of the owner's
        # account, so Pressroom must ignore these three fields.
        "date": event.occurred_at.strftime("%Y-%m-%d %H:%M:%S"),
        "ts": seconds + 3600,
        "ts_event": seconds + 3600,
        "ts_epoch": int(event.occurred_at.timestamp() * 1000),
        "message-id": event.message_id,
        "subject": _SUBJECT,
        "sending_ip": _IP_ADDRESS,
        "tags": ["sandbox"],
    }
    if event.delivery_id:
        fields["X-Mailin-custom"] = event.delivery_id
    if event.kind in (EventKind.HARD_BOUNCE, EventKind.SOFT_BOUNCE, EventKind.BLOCKED):
        fields["reason"] = event.bounce_status_and_reply[1]
    return fields


def build_resend_event(event: MailEvent) -> Fields:
    if event.kind is EventKind.UNSUBSCRIBED:
        contact = {"id": event.message_id, "email": event.email, "unsubscribed": True}
        return {"type": "contact.updated", "created_at": event.iso_time, "data": contact}
    agent = {"userAgent": event.user_agent, "ipAddress": _IP_ADDRESS}
    bounce = {
        "message": "The recipient's server rejected the mail.",
        "diagnosticCode": [f"smtp; {event.bounce_status_and_reply[1]}"],
    }
    descriptions: dict[EventKind, tuple[str, Fields]] = {
        EventKind.ACCEPTED: ("sent", {}),
        EventKind.DELIVERED: ("delivered", {}),
        EventKind.OPENED: ("opened", {"open": agent}),
        EventKind.OPENED_BY_MACHINE: ("opened", {"open": agent}),
        EventKind.CLICKED: ("clicked", {"click": {**agent, "link": _LINK}}),
        EventKind.HARD_BOUNCE: ("bounced", {"bounce": {**bounce, "type": "Permanent"}}),
        EventKind.SOFT_BOUNCE: ("bounced", {"bounce": {**bounce, "type": "Transient"}}),
        EventKind.BLOCKED: ("failed", {"failed": {"reason": "reached_daily_quota"}}),
        EventKind.COMPLAINED: ("complained", {}),
    }
    name, fields = descriptions[event.kind]
    data = {
        "email_id": event.message_id,
        "created_at": event.iso_time,
        "from": "Letters <letters@example.com>",
        "to": [event.email],
        "subject": _SUBJECT,
        "tags": {"delivery_id": event.delivery_id} if event.delivery_id else {},
        **fields,
    }
    return {"type": f"email.{name}", "created_at": event.iso_time, "data": data}


EVENT_BUILDERS: Mapping[ProviderName, Callable[[MailEvent], Fields]] = {
    ProviderName.GENERIC: build_generic_event,
    ProviderName.SES: build_ses_event,
    ProviderName.POSTMARK: build_postmark_event,
    ProviderName.MAILGUN: build_mailgun_event,
    ProviderName.SENDGRID: build_sendgrid_event,
    ProviderName.BREVO: build_brevo_event,
    ProviderName.RESEND: build_resend_event,
}
