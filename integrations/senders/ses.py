"""Verifies and reads reports from Amazon SES, which posts its events through Amazon SNS.

SES has two event formats. The type of an event is in the field ``eventType`` of one format, and in
the field ``notificationType`` of the other format. Amazon documents the events at
docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html and
/notification-contents.html.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from core.errors.senders import SENDER_SIGNATURE_INVALID
from core.machine_agents import is_machine_agent
from integrations.senders.bounce_statuses import find_status
from integrations.senders.delivery_ids import find_delivery_id, get_named_value
from integrations.senders.event_times import parse_iso_time
from integrations.senders.events import (
    MAX_EVENTS,
    Fields,
    ParsedEvent,
    ProviderEvent,
    has_several_people,
    parse_address,
    parse_event_type,
)
from integrations.senders.feedback_types import is_from_person
from integrations.senders.json_body import get_list, get_object, get_text, parse_json
from integrations.senders.port import (
    BounceClass,
    KeyMissing,
    ParsedBody,
    ReportKind,
    SenderProof,
    SenderProvider,
    SenderRequest,
    TopicChange,
    UnusedEvent,
    UnusedReason,
)
from integrations.senders.sns import SnsMessage, SnsMessageType, parse_message
from integrations.senders.sns_certificates import SnsCertificates
from integrations.senders.sns_topics import SnsTopic, parse_topic

SIGNATURE_V1_WARNING = "sns_signature_v1"

# The text of the test message that SES publishes when the owner connects SES to the SNS topic. The
# test message isn't JSON.
_TEST_MESSAGE = "Successfully validated SNS topic"
_CONTENT_SUBTYPES = {"MessageTooLarge", "ContentRejected", "AttachmentRejected"}
_BOUNCE_CLASSES = {
    "Permanent": BounceClass.HARD,
    "Transient": BounceClass.SOFT,
    "Undetermined": BounceClass.SOFT,
}
_MAX_TOKEN_CHARACTERS = 2_000
# The maximum age of a message. Otherwise, an attacker could repeat a stolen message for ever.
# Amazon SNS retries a message for at most an hour.
_MAX_MESSAGE_AGE = timedelta(hours=2)


class SesAdapter:
    provider = SenderProvider.SES

    def __init__(self, sns_base_url: str | None = None) -> None:
        self._certificates = SnsCertificates(sns_base_url)

    def verify(self, request: SenderRequest, proof: SenderProof) -> None:
        message = parse_message(request.body)
        topic = parse_topic(proof.topic_arn or "")
        # Accept only messages of the sender's topic, because anybody can create a topic and
        # subscribe the sender's URL to it.
        if message is None or topic is None or message.topic_arn != topic.arn:
            raise SENDER_SIGNATURE_INVALID()
        now = request.received_at
        if message.sent_at is None or abs(now - message.sent_at) > _MAX_MESSAGE_AGE:
            raise SENDER_SIGNATURE_INVALID()
        key = self._certificates.find_cached_key(topic, message.certificate_url, now)
        if key is None:
            raise KeyMissing(partial(self._fetch_key, topic, message, now))
        _require_signature(message, key)

    async def _fetch_key(
        self, topic: SnsTopic, message: SnsMessage, now: datetime
    ) -> Callable[[], None]:
        key = await self._certificates.find_key(topic, message.certificate_url, now)
        return partial(_require_signature, message, key)

    def parse(self, body: bytes) -> ParsedBody:
        message = parse_message(body)
        if message is None:
            return ParsedBody((UnusedEvent(UnusedReason.INVALID),))
        has_warning = message.signature_version == "1"
        warnings = frozenset({SIGNATURE_V1_WARNING} if has_warning else ())
        match message.type:
            case SnsMessageType.SUBSCRIPTION:
                token = get_text(message.fields, "Token", max_characters=_MAX_TOKEN_CHARACTERS)
                if token is None:
                    return ParsedBody((UnusedEvent(UnusedReason.INVALID),), warnings)
                return ParsedBody((), warnings, TopicChange.CONFIRM, token)
            case SnsMessageType.UNSUBSCRIPTION:
                return ParsedBody((), warnings, TopicChange.UNSUBSCRIBED)
        return ParsedBody(tuple(_parse_notification(message)), warnings)


def _require_signature(message: SnsMessage, key: RSAPublicKey) -> None:
    if not message.is_signed_by(key):
        raise SENDER_SIGNATURE_INVALID()


def _parse_notification(message: SnsMessage) -> list[ParsedEvent]:
    text = message.fields["Message"]
    if text.startswith(_TEST_MESSAGE):
        return [UnusedEvent(UnusedReason.IGNORED)]
    content = parse_json(text.encode())
    if not isinstance(content, dict):
        return [UnusedEvent(UnusedReason.INVALID)]
    return _parse_event(content)


def _parse_event(fields: Fields) -> list[ParsedEvent]:
    event_type = parse_event_type(fields.get("eventType") or fields.get("notificationType"))
    mail = get_object(fields, "mail")
    details = get_object(fields, (event_type or "").lower())
    recipients = get_list(mail, "destination")
    is_shared = has_several_people(recipients) or has_several_people(_list_addresses(details))
    tags = get_object(mail, "tags")
    tag_values = [value for values in tags.values() if isinstance(values, list) for value in values]
    event = ProviderEvent(
        event_type=event_type,
        # A delivery id belongs to one recipient. If a mail has several recipients, the event
        # doesn't say which recipient the delivery id belongs to.
        delivery_id=None
        if is_shared
        else find_delivery_id(_find_named_tag(tags), mail.get("headers"), tag_values),
        email=None if is_shared or not recipients else parse_address(recipients[0]),
        occurred_at=parse_iso_time(details.get("timestamp")),
        message_id=get_text(mail, "messageId"),
    )
    match event_type:
        case None:
            return [event.reject()]
        case "Bounce":
            return _parse_bounces(event, details)
        case "Delivery":
            return [
                _name_recipient(event, address).report(ReportKind.DELIVERED)
                for address in get_list(details, "recipients")[:MAX_EVENTS] or [None]
            ]
        case "Complaint":
            return [_parse_complaint(event, details)]
    # Events of all other types, such as opens, don't name a recipient. Therefore ignore these
    # events if the mail has several recipients.
    return [event.ignore() if is_shared else _parse_unnamed(event, mail, details)]


def _parse_bounces(event: ProviderEvent, details: Fields) -> list[ParsedEvent]:
    bounce_class = _BOUNCE_CLASSES.get(get_text(details, "bounceType") or "")
    if bounce_class is None:
        return [event.ignore()]
    if get_text(details, "bounceSubType") in _CONTENT_SUBTYPES:
        bounce_class = BounceClass.CONTENT
    bounces: list[ParsedEvent] = []
    for recipient in get_list(details, "bouncedRecipients")[:MAX_EVENTS] or [{}]:
        fields = get_object(recipient)
        status = find_status(fields.get("status"), fields.get("diagnosticCode"))
        named_event = _name_recipient(event, fields.get("emailAddress"))
        bounces.append(named_event.report_bounce(bounce_class, status))
    return bounces


def _parse_complaint(event: ProviderEvent, details: Fields) -> ParsedEvent:
    recipients = get_list(details, "complainedRecipients")
    # SES lists all recipients who may have complained. If SES lists several recipients, ignore the
    # complaint, because nobody knows which of them complained.
    has_candidates = has_several_people(_list_addresses(details))
    if has_candidates or not is_from_person(details.get("complaintFeedbackType")):
        return event.ignore()
    address = get_object(recipients[0]).get("emailAddress") if recipients else None
    return _name_recipient(event, address).report(ReportKind.COMPLAINED)


def _parse_unnamed(event: ProviderEvent, mail: Fields, details: Fields) -> ParsedEvent:
    match event.event_type:
        case "Open" | "Click":
            kind = ReportKind.OPENED if event.event_type == "Open" else ReportKind.CLICKED
            return event.report(kind, is_machine=is_machine_agent(details.get("userAgent")))
        case "Subscription" if _is_unsubscription(details):
            return event.report(ReportKind.UNSUBSCRIBED)
        case "Reject":
            # A ``Reject`` event doesn't contain the time of the rejection. Use the time at which
            # the mail was sent to SES, because SES rejects a mail immediately.
            rejection = replace(event, occurred_at=parse_iso_time(mail.get("timestamp")))
            return rejection.report_bounce(BounceClass.CONTENT, None)
    return event.ignore()


def _name_recipient(event: ProviderEvent, address: object) -> ProviderEvent:
    return replace(event, email=parse_address(address) or event.email)


def _list_addresses(details: Fields) -> list[object]:
    """Return the addresses that the event concerns, which may be only some of the recipients."""
    people = (*get_list(details, "bouncedRecipients"), *get_list(details, "complainedRecipients"))
    addresses = [get_object(person).get("emailAddress") for person in people]
    return [*addresses, *get_list(details, "recipients")]


def _find_named_tag(tags: Fields) -> object:
    values = get_named_value(tags, "delivery_id")
    return values[0] if isinstance(values, list) and values else None


def _is_unsubscription(details: Fields) -> bool:
    """Return whether a person unsubscribed from the whole list or from one of its topics.

    SES sends a ``Subscription`` event even if the person subscribes again.
    """
    preferences = get_object(details, "newTopicPreferences")
    if not preferences or preferences.get("unsubscribeAll") is True:
        return True
    former_preferences = get_object(details, "oldTopicPreferences")
    if former_preferences.get("unsubscribeAll") is True:
        # The person had left all topics before, and has now subscribed to some of them again.
        return False
    left_before = _find_left_topics(former_preferences)
    return not _find_left_topics(preferences) <= left_before


def _find_left_topics(preferences: Fields) -> set[str]:
    topics = map(get_object, get_list(preferences, "topicSubscriptionStatus"))
    return {
        get_text(topic, "topicName") or ""
        for topic in topics
        if topic.get("subscriptionStatus") == "OptOut"
    }
