"""Defines the types of events in an owner's feed, and writes events to the feed.

Event types can be added but are never removed.

Stored events contain no personal data except ids. The fields ``email`` and ``name`` of an event are
looked up whenever the event is read, and are null after the person's erasure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import select

from core.ids import AccountId
from core.permissions import Permission
from core.scopes import Scope
from models import FeedEvent, MailingList
from services.feed.event_data import (
    AttachmentFacts,
    BalanceFacts,
    BulkFacts,
    CredentialFacts,
    ExportFacts,
    FailedAttachmentFacts,
    ImportFacts,
    MailingFacts,
    ManyChangesFacts,
    MemberFacts,
    OrderFacts,
    SegmentMemberFacts,
    SenderFacts,
    ShownData,
    TransferFacts,
)
from storage.unit_of_work import UnitOfWork

# The types of values in stored events, which must not contain personal data such as names.
StoredFact = int | str | bool | None


class FeedEventType(StrEnum):
    SUBSCRIPTION_CREATED = "subscription.created"
    SUBSCRIPTION_CONFIRMED = "subscription.confirmed"
    SUBSCRIPTION_LEFT = "subscription.left"
    SUBSCRIPTION_EMAIL_OFF = "subscription.email_off"
    SUBSCRIPTION_EMAIL_ON = "subscription.email_on"
    SUBSCRIPTION_REMOVED = "subscription.removed"
    SUBSCRIPTION_TRANSFERRED = "subscription.transferred"
    SUBSCRIPTION_CHANGED = "subscription.changed"
    SEGMENT_ENTERED = "segment.entered"
    SEGMENT_LEFT = "segment.left"
    SEGMENT_MANY = "segment.many"
    IMPORT_ENDED = "import.ended"
    EXPORT_ENDED = "export.ended"
    BULK_ENDED = "bulk.ended"
    ATTACHMENT_READY = "attachment.ready"
    ATTACHMENT_FAILED = "attachment.failed"
    ATTACHMENT_DELETED = "attachment.deleted"
    ORDER_PAID = "order.paid"
    ORDER_REFUNDED = "order.refunded"
    ORDER_DISPUTED = "order.disputed"
    ORDER_REVIEW = "order.review"
    CREDITS_LOW = "credits.low"
    KEY_CREATED = "key.created"
    KEY_ENDED = "key.ended"
    GRANT_CREATED = "grant.created"
    GRANT_ENDED = "grant.ended"
    SENDER_FAILING = "sender.failing"
    SENDER_RECOVERED = "sender.recovered"
    MAILING_ALARM = "mailing.alarm"


class SubjectKind(StrEnum):
    """The kind of record that an event is about."""

    SUBSCRIPTION = "subscription"
    SEGMENT = "segment"
    IMPORT = "import"
    EXPORT = "export"
    ATTACHMENT = "attachment"
    ORDER = "order"
    CREDIT_ACCOUNT = "credit_account"
    KEY = "key"
    GRANT = "grant"
    SENDER = "sender"


@dataclass(frozen=True)
class TypeEntry:
    """An event type.

    If ``scope`` is ``None``, only sessions and unrestricted API keys may see events of this type.
    """

    summary: str
    meaning: str
    subject: SubjectKind
    scope: Scope | None
    permission: Permission
    data: type[ShownData]


# The default subject, scope and data schema for each prefix of event types, such as "subscription".
# The subject of an event about a bulk action is the import that the bulk action undoes, if any.
_DEFAULTS_BY_PREFIX: Mapping[str, tuple[SubjectKind, Scope | None, type[ShownData]]] = {
    "subscription": (SubjectKind.SUBSCRIPTION, Scope.SUBSCRIPTION_READ, MemberFacts),
    "segment": (SubjectKind.SUBSCRIPTION, Scope.SUBSCRIPTION_READ, SegmentMemberFacts),
    "import": (SubjectKind.IMPORT, Scope.SUBSCRIPTION_READ, ImportFacts),
    "export": (SubjectKind.EXPORT, Scope.SUBSCRIPTION_READ, ExportFacts),
    "bulk": (SubjectKind.IMPORT, Scope.SUBSCRIPTION_READ, BulkFacts),
    "attachment": (SubjectKind.ATTACHMENT, Scope.ATTACHMENT, AttachmentFacts),
    "order": (SubjectKind.ORDER, Scope.CREDIT_READ, OrderFacts),
    "credits": (SubjectKind.CREDIT_ACCOUNT, Scope.CREDIT_READ, BalanceFacts),
    "key": (SubjectKind.KEY, None, CredentialFacts),
    "grant": (SubjectKind.GRANT, None, CredentialFacts),
    "sender": (SubjectKind.SENDER, Scope.SUBSCRIPTION_READ, SenderFacts),
    "mailing": (SubjectKind.SENDER, Scope.SUBSCRIPTION_READ, MailingFacts),
}
_PERMISSIONS_BY_PREFIX = {
    "subscription": Permission.MEMBERS,
    "segment": Permission.MEMBERS,
    "import": Permission.FIGURES,
    "export": Permission.FIGURES,
    "bulk": Permission.FIGURES,
    "attachment": Permission.IMAGES,
    "order": Permission.MONEY_READ,
    "credits": Permission.MONEY_READ,
    "key": Permission.ACCESS,
    "grant": Permission.ACCESS,
    "sender": Permission.ACCESS,
    "mailing": Permission.FIGURES,
}
_SUMMARIES = {
    FeedEventType.SUBSCRIPTION_CREATED: "Subscription created",
    FeedEventType.SUBSCRIPTION_CONFIRMED: "Subscription confirmed",
    FeedEventType.SUBSCRIPTION_LEFT: "Member unsubscribed",
    FeedEventType.SUBSCRIPTION_EMAIL_OFF: "Mail turned off",
    FeedEventType.SUBSCRIPTION_EMAIL_ON: "Mail turned on",
    FeedEventType.SUBSCRIPTION_REMOVED: "Member removed",
    FeedEventType.SUBSCRIPTION_TRANSFERRED: "Member transferred",
    FeedEventType.SUBSCRIPTION_CHANGED: "Member updated",
    FeedEventType.SEGMENT_ENTERED: "Member entered a segment",
    FeedEventType.SEGMENT_LEFT: "Member left a segment",
    FeedEventType.SEGMENT_MANY: "Many members entered or left a segment",
    FeedEventType.IMPORT_ENDED: "Import ended",
    FeedEventType.EXPORT_ENDED: "Export ended",
    FeedEventType.BULK_ENDED: "Bulk action or undo ended",
    FeedEventType.ATTACHMENT_READY: "Attachment ready",
    FeedEventType.ATTACHMENT_FAILED: "Attachment failed",
    FeedEventType.ATTACHMENT_DELETED: "Attachment deleted",
    FeedEventType.ORDER_PAID: "Order paid",
    FeedEventType.ORDER_REFUNDED: "Order refunded",
    FeedEventType.ORDER_DISPUTED: "Order disputed",
    FeedEventType.ORDER_REVIEW: "Order needs review",
    FeedEventType.CREDITS_LOW: "Credits low",
    FeedEventType.KEY_CREATED: "API key created",
    FeedEventType.KEY_ENDED: "API key revoked",
    FeedEventType.GRANT_CREATED: "App access granted",
    FeedEventType.GRANT_ENDED: "App access revoked",
    FeedEventType.SENDER_FAILING: "Sender failing",
    FeedEventType.SENDER_RECOVERED: "Sender recovered",
    FeedEventType.MAILING_ALARM: "Many bounces or complaints",
}
_MEANINGS = {
    FeedEventType.SUBSCRIPTION_CREATED: (
        "A person joined or rejoined a list with a form, with a login, or by "
        "undoing an unsubscription."
    ),
    FeedEventType.SUBSCRIPTION_CONFIRMED: (
        "A pending person became active through the confirmation link or a login."
    ),
    FeedEventType.SUBSCRIPTION_LEFT: "A person unsubscribed from a list.",
    FeedEventType.SUBSCRIPTION_EMAIL_OFF: "A subscriber's mail was turned off.",
    FeedEventType.SUBSCRIPTION_EMAIL_ON: "A subscriber's mail was turned on again.",
    FeedEventType.SUBSCRIPTION_REMOVED: "The owner removed a member, or a member was erased.",
    FeedEventType.SUBSCRIPTION_TRANSFERRED: (
        "The owner moved a member to another list. Each of the two lists has its own event."
    ),
    FeedEventType.SUBSCRIPTION_CHANGED: "The owner changed a member's name, tier or expiry.",
    FeedEventType.SEGMENT_ENTERED: (
        "A member is in a watched segment and wasn't at the previous comparison."
    ),
    FeedEventType.SEGMENT_LEFT: (
        "A member is no longer in a watched segment, for example because they unsubscribed."
    ),
    FeedEventType.SEGMENT_MANY: (
        "A comparison of a watched segment found more than 10,000 changes. These changes have no "
        "events of their own. `GET /lists/{list_id}/segments/{segment_id}/changes` lists them."
    ),
    FeedEventType.IMPORT_ENDED: (
        "An import, a dry run or a request to members/add ended. One event covers all members."
    ),
    FeedEventType.EXPORT_ENDED: "An export ended. If the export succeeded, the file is available.",
    FeedEventType.BULK_ENDED: (
        "A bulk action, its undo, or the undo of an import ended. One event "
        "covers all members. A bulk action has no subject."
    ),
    FeedEventType.ATTACHMENT_READY: "An uploaded image was converted and can be used.",
    FeedEventType.ATTACHMENT_FAILED: "An uploaded image couldn't be converted.",
    FeedEventType.ATTACHMENT_DELETED: "The owner deleted an attachment.",
    FeedEventType.ORDER_PAID: (
        "An order of credits was paid, or the payment was restored after a "
        "dispute or a failed refund."
    ),
    FeedEventType.ORDER_REFUNDED: "An order was fully refunded.",
    FeedEventType.ORDER_DISPUTED: "The payer disputed a payment, and the bank withdrew the money.",
    FeedEventType.ORDER_REVIEW: "The payment didn't match its order. The operator reviews it.",
    FeedEventType.CREDITS_LOW: (
        "The balance fell below the threshold of the account. The event is not "
        "repeated until the balance reaches the threshold again."
    ),
    FeedEventType.KEY_CREATED: "An API key was created.",
    FeedEventType.KEY_ENDED: (
        "One or more API keys were revoked. Revoking a key also revokes the keys "
        "that the key created."
    ),
    FeedEventType.GRANT_CREATED: "An app received access to the account or additional scopes.",
    FeedEventType.GRANT_ENDED: "One app or all apps lost access to the account.",
    FeedEventType.SENDER_FAILING: (
        "Pressroom rejected many calls of a sender, the subscription to the sender's topic ended, "
        "or no report about a large mailing arrived."
    ),
    FeedEventType.SENDER_RECOVERED: "A sender that was failing works again.",
    FeedEventType.MAILING_ALARM: (
        "Hard bounces reached 5 % or complaints reached 0.3 % of a mailing of at least 500 rows. "
        "Each mailing has at most one such event. The subject is the sender whose report reached "
        "the limit."
    ),
}
# The subjects of event types that don't use the default subject of the type's prefix.
_SUBJECT_EXCEPTIONS = {FeedEventType.SEGMENT_MANY: SubjectKind.SEGMENT}
# The permissions for event types that don't use the default permission of the type's prefix.
_PERMISSION_EXCEPTIONS = {FeedEventType.SEGMENT_MANY: Permission.FIGURES}
# The data schemas of event types that don't use the default schema of the type's prefix.
_DATA_EXCEPTIONS: Mapping[FeedEventType, type[ShownData]] = {
    FeedEventType.SUBSCRIPTION_TRANSFERRED: TransferFacts,
    FeedEventType.SEGMENT_MANY: ManyChangesFacts,
    FeedEventType.ATTACHMENT_FAILED: FailedAttachmentFacts,
}
CATALOGUE: Mapping[FeedEventType, TypeEntry] = {
    kind: TypeEntry(
        _SUMMARIES[kind],
        meaning,
        _SUBJECT_EXCEPTIONS.get(kind, subject),
        scope,
        _PERMISSION_EXCEPTIONS.get(kind, _PERMISSIONS_BY_PREFIX[prefix]),
        _DATA_EXCEPTIONS.get(kind, data),
    )
    for kind, meaning in _MEANINGS.items()
    for prefix in [kind.partition(".")[0]]
    for subject, scope, data in [_DEFAULTS_BY_PREFIX[prefix]]
}


def announce_event(
    uow: UnitOfWork,
    account_id: AccountId,
    kind: FeedEventType,
    /,
    subject_id: int | None = None,
    *,
    list_id: int | None = None,
    **data: StoredFact,
) -> None:
    """Write an event in the transaction that makes the change. ``data`` has at most 2,000 bytes."""
    row = FeedEvent(
        user_id=account_id, type=kind, subject_id=subject_id, list_id=list_id, data=data
    )
    uow.session.add(row)


def announce_list_event(
    uow: UnitOfWork,
    list_id: int,
    kind: FeedEventType,
    /,
    subject_id: int | None = None,
    **data: StoredFact,
) -> None:
    owner_id: Any = select(MailingList.user_id).where(MailingList.id == list_id).scalar_subquery()
    announce_event(uow, owner_id, kind, subject_id, list_id=list_id, **data)
