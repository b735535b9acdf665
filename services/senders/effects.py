"""Changes members and mailings according to the reports of senders.

Complaints and unsubscriptions are opt-outs. Opt-outs of members are stored one by one, which is
acceptable because they are rare. Most other statements handle all reports of a batch.

A worker stores the members' opt-outs first and in transactions of their own, so that an opt-out
takes effect even while a bulk action locks the list. ``apply_reports`` makes all other changes. If
it fails, the worker later repeats both steps. Storing an opt-out twice has no effect.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import text

from core.ids import PersonId
from integrations.senders.port import BounceClass, ReportKind
from models import ReportOutcome, Sender
from services.senders.mailing_figures import count_reports, predict_duplicates
from services.senders.report import (
    ENGAGEMENT_KINDS,
    ReceivedReport,
    get_opt_out_source,
    iterate_outcomes,
)
from services.senders.strangers import opt_out_strangers, predict_opt_outs
from services.subscriptions.members import bounce_recording, opt_outs
from services.subscriptions.members.bounce_recording import BounceOutcome, ReportedBounce
from services.subscriptions.members.stale_events import MemberMailing
from services.subscriptions.members.unsubscribe import ReportedOptOut
from storage.unit_of_work import UnitOfWork

# If a report concerns several lists, its outcomes on these lists can differ. Owners see only one
# outcome per report: the one that comes first in ``_OUTCOME_ORDER``.
_OUTCOME_ORDER = (
    ReportOutcome.APPLIED,
    ReportOutcome.DUPLICATE,
    ReportOutcome.LATE,
    ReportOutcome.STALE,
    ReportOutcome.OFF,
    ReportOutcome.IGNORED,
    ReportOutcome.UNMATCHED,
)
# Selects the members whose opt-out must be stored, and returns the positions of these members in
# the arrays of ids. Omits members who have already opted out, unless their subscription is still
# active or pending.
_NEEDED_OPT_OUTS = text("""
SELECT r.number - 1 FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]))
    WITH ORDINALITY AS r (list_id, user_id, number)
WHERE NOT EXISTS (
    SELECT FROM opt_outs AS o
    WHERE o.list_id = r.list_id AND o.user_id = r.user_id AND o.kind = 'list'
) OR EXISTS (
    SELECT FROM subscriptions AS m WHERE m.list_id = r.list_id AND m.user_id = r.user_id
        AND m.status IN ('active', 'pending')
)
""")


def choose_opt_outs(reports: Iterable[ReceivedReport]) -> list[ReceivedReport]:
    return [report for report in reports if get_opt_out_source(report) is not None]


def find_missing_opt_outs(
    uow: UnitOfWork, reports: Iterable[ReceivedReport]
) -> dict[tuple[int, PersonId], ReportedOptOut]:
    """Return the opt-outs that aren't stored yet, by list id and user id."""
    reported: dict[tuple[int, PersonId], ReportedOptOut] = {}
    for report in reports:
        source = get_opt_out_source(report)
        for member, outcome in zip(report.members, report.outcomes, strict=True):
            # If a member both complained and unsubscribed, store the complaint.
            is_stronger = source == opt_outs.SENDER_COMPLAINT or member.pair not in reported
            if source is not None and outcome is ReportOutcome.APPLIED and is_stronger:
                mailing_id = member.mailing_id if member.mailing_id > 0 else None
                reported[member.pair] = ReportedOptOut(source, mailing_id)
    if not reported:
        return {}
    pairs = sorted(reported)
    values = {"list_ids": [pair[0] for pair in pairs], "user_ids": [pair[1] for pair in pairs]}
    needed = [pairs[number] for number in uow.session.scalars(_NEEDED_OPT_OUTS, values)]
    return {pair: reported[pair] for pair in needed}


def apply_reports(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    """Make all changes except members' opt-outs, and set the ``outcome`` of each report.

    Raises ``TransientError`` if another transaction has locked a list.
    """
    bounces, reached_mails = _collect_mails(reports)
    if bounces.reported:
        results = bounce_recording.record_bounces(
            uow,
            bounces.reported,
            covered_list_ids=_get_covered_ids(sender),
            reached_mails=reached_mails,
        )
        bounces.set_outcomes(results)
    else:
        bounce_recording.end_soft_bounces(uow, reached_mails)
    opt_out_strangers(uow, sender, reports)
    count_reports(uow, sender, reports)
    _choose_shown_outcomes(reports)


def predict_outcomes(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    """Set the ``outcome`` that ``apply_reports`` would set."""
    bounces, _ = _collect_mails(reports)
    bounces.set_outcomes(
        bounce_recording.predict_bounces(
            uow, bounces.reported, covered_list_ids=_get_covered_ids(sender)
        )
    )
    predict_opt_outs(uow, sender, reports)
    predict_duplicates(uow, reports)
    _choose_shown_outcomes(reports)


class _Bounces(NamedTuple):
    """``places``: the report of each bounce, and the index of its member in ``report.members``."""

    places: list[tuple[ReceivedReport, int]]
    reported: list[ReportedBounce]

    def set_outcomes(self, outcomes: Iterable[BounceOutcome]) -> None:
        for (report, index), outcome in zip(self.places, outcomes, strict=True):
            report.outcomes[index] = ReportOutcome(outcome.value)


def _collect_mails(reports: Iterable[ReceivedReport]) -> tuple[_Bounces, list[MemberMailing]]:
    """Return the bounces, and the mails that reached their members, which ends soft bounces."""
    bounces = _Bounces([], [])
    reached_mails: list[MemberMailing] = []
    for report, event, index, member, outcome in iterate_outcomes(reports):
        if outcome is ReportOutcome.STALE:
            continue
        if event.bounce_class in (BounceClass.HARD, BounceClass.SOFT):
            is_hard = event.bounce_class is BounceClass.HARD
            bounces.places.append((report, index))
            address = None if report.delivery else report.address
            bounces.reported.append(ReportedBounce(member, is_hard, event.status, address))
        elif event.kind is ReportKind.DELIVERED or (
            event.kind in ENGAGEMENT_KINDS and not event.is_machine
        ):
            reached_mails.append(member)
    return bounces, reached_mails


def _get_covered_ids(sender: Sender) -> Collection[int] | None:
    return None if sender.any_list else sender.list_ids


def _choose_shown_outcomes(reports: Iterable[ReceivedReport]) -> None:
    for report in reports:
        if len(report.outcomes) == 1:
            [report.outcome] = report.outcomes
        elif report.outcomes:
            report.outcome = min(report.outcomes, key=_OUTCOME_ORDER.index)
