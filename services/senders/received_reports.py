"""Defines the events that a sender posted, with their effects."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from integrations.senders.port import Report, ReportKind, UnusedEvent, UnusedReason
from models import ReportOutcome
from services.senders.reports import mask_recipient
from services.subscriptions.members import unsubscribe
from services.subscriptions.members.bounce_reports import MemberMailing
from services.subscriptions.members.delivery_ids import DeliveryId

# A report may state a time that is at most this far in the future. A later time is replaced with
# the time of arrival.
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
OPT_OUT_SOURCES = {
    ReportKind.COMPLAINED: unsubscribe.SENDER_COMPLAINT,
    ReportKind.UNSUBSCRIBED: unsubscribe.SENDER_UNSUBSCRIBE,
}
ENGAGEMENT_KINDS = frozenset({ReportKind.DELIVERED, ReportKind.OPENED, ReportKind.CLICKED})


@dataclass(slots=True)
class ReceivedReport:
    """An event that a sender posted, and its effect.

    The event is a report, or an event that Pressroom ignores or can't read. ``find_members`` and
    ``apply_reports`` set the attributes that describe the effect.

    Attributes:
        occurred_at: the time that the sender states, or the time of arrival if that time is missing
            or lies in the future.
        delivery: the decoded delivery id of the report, or ``None`` if the report has no valid
            delivery id.
        address: the normalised address of the recipient, or ``None`` if the report has no valid
            address.
        members: the recipient's subscriptions that the report changes. A report without a delivery
            id may change subscriptions to several lists.
        outcomes: the outcome for each item of ``members``, in the same order.
    """

    event: Report | UnusedEvent
    received_at: datetime
    occurred_at: datetime = field(init=False)
    delivery: DeliveryId | None = None
    address: str | None = None
    members: list[MemberMailing] = field(default_factory=list)
    outcomes: list[ReportOutcome] = field(default_factory=list)
    outcome: ReportOutcome = ReportOutcome.UNMATCHED

    def __post_init__(self) -> None:
        occurred_at = self.event.occurred_at
        is_usable = (
            occurred_at is not None and occurred_at <= self.received_at + _MAX_CLOCK_DIFFERENCE
        )
        self.occurred_at = occurred_at if occurred_at and is_usable else self.received_at
        if isinstance(self.event, UnusedEvent):
            is_ignored = self.event.reason is UnusedReason.IGNORED
            self.outcome = ReportOutcome.IGNORED if is_ignored else ReportOutcome.INVALID


class ReportFacts(NamedTuple):
    """The fields of a report that Pressroom keeps for the list of recent reports.

    Attributes:
        code: the cause of a bounce. For an event that Pressroom ignores or can't read, the
            provider's name of the event's type.
        recipient: the masked address of the recipient, if no member was found.
    """

    kind: str | None
    outcome: str
    code: str | None
    status: str | None
    mailing_id: int | None
    list_id: int | None
    user_id: int | None
    recipient: str | None


def describe_report(received: ReceivedReport) -> ReportFacts:
    event = received.event
    if isinstance(event, UnusedEvent):
        outcome = received.outcome.value
        return ReportFacts(None, outcome, event.event_type, None, None, None, None, None)
    member = received.members[0] if received.members else None
    is_masked = member is None and received.address is not None
    return ReportFacts(
        kind=event.kind.value,
        outcome=received.outcome.value,
        code=None if event.bounce_class is None else event.bounce_class.value,
        status=event.status,
        mailing_id=member.mailing_id if member and member.mailing_id > 0 else None,
        list_id=member.list_id if member else None,
        user_id=member.user_id if member else None,
        recipient=mask_recipient(received.address or "") if is_masked else None,
    )


def get_opt_out_source(received: ReceivedReport) -> str | None:
    """Return the source for the opt-out of a complaint or an unsubscription.

    Return ``None`` for all other events.
    """
    event = received.event
    return OPT_OUT_SOURCES.get(event.kind) if isinstance(event, Report) else None


def iterate_outcomes(
    received: Iterable[ReceivedReport],
) -> Iterator[tuple[ReceivedReport, Report, int, MemberMailing, ReportOutcome]]:
    """Yield each member of each report, with the member's index and the outcome for the member."""
    for each in received:
        if isinstance(each.event, Report):
            members = zip(each.members, [*each.outcomes], strict=True)
            for index, (member, outcome) in enumerate(members):
                yield each, each.event, index, member, outcome
