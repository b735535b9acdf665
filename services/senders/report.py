"""The reports that a sender posted, with their outcomes and the members that they concern."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from core.ids import PersonId
from integrations.senders.port import Report, ReportKind, UnusedEvent, UnusedReason
from models import ReportOutcome
from services.senders.report_history import mask_recipient
from services.subscriptions.members import opt_outs
from services.subscriptions.members.delivery_ids import DeliveryId
from services.subscriptions.members.stale_events import MemberMailing

# If the time in a report is later than the report's arrival by more than ``_MAX_CLOCK_DIFFERENCE``,
# the time of arrival is used instead.
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
OPT_OUT_SOURCES = {
    ReportKind.COMPLAINED: opt_outs.SENDER_COMPLAINT,
    ReportKind.UNSUBSCRIBED: opt_outs.SENDER_UNSUBSCRIBE,
}
ENGAGEMENT_KINDS = frozenset({ReportKind.DELIVERED, ReportKind.OPENED, ReportKind.CLICKED})


@dataclass(slots=True)
class ReceivedReport:
    """A report that a sender posted, or an event that Pressroom ignores or can't read.

    Attributes:
        occurred_at: the time of the event according to the sender, or the time of arrival if the
            sender's time is missing or lies in the future.
        delivery: the decoded delivery id, or ``None`` if the report has no valid one.
        members: a report without a delivery id can concern the same person on several lists.
        outcomes: the outcome for each item of ``members``, in the same order.
        are_measured: whether the engagement of each item of ``members`` is recorded.
        outcome: the outcome that owners see.
    """

    event: Report | UnusedEvent
    received_at: datetime
    occurred_at: datetime = field(init=False)
    is_recipient_read: bool = False
    are_members_found: bool = False
    delivery: DeliveryId | None = None
    address: str | None = None
    members: list[MemberMailing] = field(default_factory=list)
    outcomes: list[ReportOutcome] = field(default_factory=list)
    are_measured: list[bool] = field(default_factory=list)
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
    """The stored facts about a report, which owners see.

    Attributes:
        code: the class of a bounce, such as ``hard``, or the provider's name for the type of an
            event that Pressroom ignores or can't read.
        recipient: the masked address of the recipient, or ``None`` if the member was found.
    """

    kind: str | None
    outcome: str
    code: str | None
    status: str | None
    mailing_id: int | None
    list_id: int | None
    user_id: PersonId | None
    recipient: str | None


def describe_report(report: ReceivedReport) -> ReportFacts:
    event = report.event
    if isinstance(event, UnusedEvent):
        outcome = report.outcome.value
        return ReportFacts(None, outcome, event.event_type, None, None, None, None, None)
    member = report.members[0] if report.members else None
    is_masked = member is None and report.address is not None
    return ReportFacts(
        kind=event.kind.value,
        outcome=report.outcome.value,
        code=None if event.bounce_class is None else event.bounce_class.value,
        status=event.status,
        mailing_id=member.mailing_id if member and member.mailing_id > 0 else None,
        list_id=member.list_id if member else None,
        user_id=member.user_id if member else None,
        recipient=mask_recipient(report.address or "") if is_masked else None,
    )


def get_opt_out_source(report: ReceivedReport) -> str | None:
    """Return the value of ``opt_outs.source``, or ``None`` if the report isn't an opt-out."""
    event = report.event
    return OPT_OUT_SOURCES.get(event.kind) if isinstance(event, Report) else None


def iterate_outcomes(
    reports: Iterable[ReceivedReport],
) -> Iterator[tuple[ReceivedReport, Report, int, MemberMailing, ReportOutcome]]:
    """The third item of each returned tuple is the member's index in ``report.members``."""
    for report in reports:
        if isinstance(report.event, Report):
            members = zip(report.members, [*report.outcomes], strict=True)
            for index, (member, outcome) in enumerate(members):
                yield report, report.event, index, member, outcome
