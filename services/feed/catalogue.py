"""The types of the feed's events: what each is about, who may see it, and what its data holds.

A type that was published stays. Its data may gain fields, and loses none.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.refusals.access import AUTH_INSUFFICIENT_SCOPE, AUTH_RESTRICTED_CREDENTIAL
from core.scopes import Scope
from services.feed import shown_data
from services.feed.shown_data import ShownData


class FeedEventType(StrEnum):
    SUBSCRIPTION_CREATED = "subscription.created"
    SUBSCRIPTION_CONFIRMED = "subscription.confirmed"
    SUBSCRIPTION_LEFT = "subscription.left"
    SUBSCRIPTION_EMAIL_OFF = "subscription.email_off"
    SUBSCRIPTION_EMAIL_ON = "subscription.email_on"
    SUBSCRIPTION_REMOVED = "subscription.removed"
    SUBSCRIPTION_TRANSFERRED = "subscription.transferred"
    SUBSCRIPTION_CHANGED = "subscription.changed"
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


class SubjectKind(StrEnum):
    """What an event is about."""

    SUBSCRIPTION = "subscription"
    IMPORT = "import"
    EXPORT = "export"
    ATTACHMENT = "attachment"
    ORDER = "order"
    CREDIT_ACCOUNT = "credit_account"
    KEY = "key"
    GRANT = "grant"


@dataclass(frozen=True)
class TypeEntry:
    """
    Attributes:
        meaning: when such an event is written, in a sentence for the API's document.
        scope: what a credential needs to see such an event. None: it is a session or an
            unrestricted key, as for what the event tells of.
        data: the schema of the event's ``data``, with an example.
    """

    meaning: str
    subject: SubjectKind
    scope: Scope | None
    data: type[ShownData]


def _of_member(meaning: str, data: type[ShownData] = shown_data.MemberFacts) -> TypeEntry:
    return TypeEntry(meaning, SubjectKind.SUBSCRIPTION, Scope.SUBSCRIPTION_READ, data)


def _of_bulk(meaning: str, subject: SubjectKind, data: type[ShownData]) -> TypeEntry:
    return TypeEntry(meaning, subject, Scope.SUBSCRIPTION_READ, data)


def _of_attachment(meaning: str, data: type[ShownData] = shown_data.AttachmentFacts) -> TypeEntry:
    return TypeEntry(meaning, SubjectKind.ATTACHMENT, Scope.ATTACHMENT, data)


def _of_order(meaning: str) -> TypeEntry:
    return TypeEntry(meaning, SubjectKind.ORDER, Scope.CREDIT_READ, shown_data.OrderFacts)


def _of_credential(meaning: str, subject: SubjectKind) -> TypeEntry:
    return TypeEntry(meaning, subject, None, shown_data.CredentialFacts)


_TYPE = FeedEventType
CATALOGUE: Mapping[FeedEventType, TypeEntry] = {
    _TYPE.SUBSCRIPTION_CREATED: _of_member(
        "A person came onto a list, or came back to it: by a form, by their login, or by taking "
        "back that they left."
    ),
    _TYPE.SUBSCRIPTION_CONFIRMED: _of_member(
        "A pending person became active, by the mailed link or by their login."
    ),
    _TYPE.SUBSCRIPTION_LEFT: _of_member("A person left the list by their own act."),
    _TYPE.SUBSCRIPTION_EMAIL_OFF: _of_member("A subscriber's mail was switched off."),
    _TYPE.SUBSCRIPTION_EMAIL_ON: _of_member("A subscriber's mail was switched on again."),
    _TYPE.SUBSCRIPTION_REMOVED: _of_member("The owner removed a member, or a member was erased."),
    _TYPE.SUBSCRIPTION_TRANSFERRED: _of_member(
        "The owner moved a member to another list: one event for each of the two lists.",
        shown_data.TransferFacts,
    ),
    _TYPE.SUBSCRIPTION_CHANGED: _of_member("The owner changed a member's name, tier or expiry."),
    _TYPE.IMPORT_ENDED: _of_bulk(
        "An import, a dry run, or a call of members/add ended: one event for all of its members.",
        SubjectKind.IMPORT,
        shown_data.ImportFacts,
    ),
    _TYPE.EXPORT_ENDED: _of_bulk(
        "The file of an export is there, or won't be.", SubjectKind.EXPORT, shown_data.ExportFacts
    ),
    _TYPE.BULK_ENDED: _of_bulk(
        "An act on many members of a list ended, such as the undo of an import: one event for all. "
        "Without a subject it is an act on the members that fit a filter.",
        SubjectKind.IMPORT,
        shown_data.BulkFacts,
    ),
    _TYPE.ATTACHMENT_READY: _of_attachment("An upload was converted and can be seen."),
    _TYPE.ATTACHMENT_FAILED: _of_attachment(
        "An upload could not be converted.", shown_data.FailedAttachmentFacts
    ),
    _TYPE.ATTACHMENT_DELETED: _of_attachment("The owner deleted an attachment."),
    _TYPE.ORDER_PAID: _of_order(
        "An order of credits was paid, or is the owner's again after a dispute or a failed refund."
    ),
    _TYPE.ORDER_REFUNDED: _of_order("All of an order was refunded."),
    _TYPE.ORDER_DISPUTED: _of_order("The payer's bank took the payment of an order back for now."),
    _TYPE.ORDER_REVIEW: _of_order("The payment did not match its order; the operator looks at it."),
    _TYPE.CREDITS_LOW: TypeEntry(
        "The balance fell below the account's threshold. It is told once, until the balance was at "
        "the threshold again.",
        SubjectKind.CREDIT_ACCOUNT,
        Scope.CREDIT_READ,
        shown_data.BalanceFacts,
    ),
    _TYPE.KEY_CREATED: _of_credential("An API key was made.", SubjectKind.KEY),
    _TYPE.KEY_ENDED: _of_credential(
        "API keys were revoked: one with those that it made, or all at once.", SubjectKind.KEY
    ),
    _TYPE.GRANT_CREATED: _of_credential(
        "A program was let in, or was given more scopes.", SubjectKind.GRANT
    ),
    _TYPE.GRANT_ENDED: _of_credential(
        "A program, or all of them, may do nothing any more.", SubjectKind.GRANT
    ),
}


def visible_types(
    scopes: Collection[Scope], *, unrestricted: bool, only: Collection[FeedEventType] = ()
) -> frozenset[FeedEventType]:
    """The types of events that a credential may see: all of its own, or those that were asked for.

    Raises ``auth.insufficient_scope`` and ``auth.restricted_credential`` for one that was asked
    for and that it may not see.
    """
    needed = {kind: CATALOGUE[kind].scope for kind in (only or CATALOGUE)}
    visible = frozenset(
        kind
        for kind, scope in needed.items()
        if (unrestricted if scope is None else scope in scopes)
    )
    for kind in only:
        if kind not in visible:
            scope = needed[kind]
            if scope is None:
                raise AUTH_RESTRICTED_CREDENTIAL()
            raise AUTH_INSUFFICIENT_SCOPE(scope=scope, needed_scope=scope)
    return visible
