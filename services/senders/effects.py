"""Changes members and mailings according to the reports of senders.

A sender is a registered source of reports, such as a mail provider. Complaints and unsubscriptions
are opt-outs.

A large batch of reports needs about as many SQL statements as a small batch, because most
statements handle all reports of the batch. Opt-outs of members are stored one by one, each with its
own SQL statements, which is acceptable because such opt-outs are rare.

``apply_opt_outs`` runs first and in its own transaction, so that an opt-out takes effect even while
a bulk action locks the list. ``apply_reports`` makes all other changes that result from reports:
for example, it records bounces. If ``apply_reports`` fails, the worker later calls
``apply_opt_outs`` and ``apply_reports`` again. Calling ``apply_opt_outs`` again is safe, because
storing an opt-out twice has no effect.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import text

from integrations.senders.port import BounceClass, ReportKind
from models import ReportOutcome, Sender
from services.senders.mailing_figures import count_reports
from services.senders.received_reports import (
    ENGAGEMENT_KINDS,
    ReceivedReport,
    get_opt_out_source,
    iterate_outcomes,
)
from services.subscriptions.members import bounce_reports, opt_out_checks, unsubscribe
from services.subscriptions.members.bounce_reports import ReportedBounce
from services.subscriptions.members.member_mailings import MemberMailing
from storage.unit_of_work import UnitOfWork

# The maximum number of opt-outs that one SQL statement stores. A complaint from a person who isn't
# a member can opt the person's address out of all lists that the sender covers, so a batch of
# reports can cause millions of opt-outs.
_MAX_OPT_OUTS_PER_STATEMENT = 10_000
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
_HAS_MEMBER = text("""
SELECT EXISTS (
    SELECT FROM users AS u JOIN subscriptions AS m ON m.user_id = u.id
    WHERE u.email = :address AND m.list_id = :list_id
)
""")
# Inserts the rows in a fixed order, so that concurrent transactions can't deadlock.
_KEEP_ADDRESSES = text("""
INSERT INTO opt_outs (list_id, address_hmac, kind, source)
SELECT list_id, address_hmac, 'list', source
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:digests AS bytea[]), CAST(:sources AS text[]))
    WITH ORDINALITY AS r (list_id, address_hmac, source, number)
ORDER BY list_id, address_hmac, number
ON CONFLICT DO NOTHING
RETURNING list_id, address_hmac
""")
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
    """Return the complaints and unsubscriptions among the reports."""
    return [report for report in reports if get_opt_out_source(report) is not None]


def apply_opt_outs(uow: UnitOfWork, reports: Iterable[ReceivedReport]) -> list[int]:
    """Store opt-outs of the members who complained or unsubscribed, without locking a list.

    Return the ids of the jobs that unsubscribe the members who opted out (see
    ``record_reported_opt_outs``).
    """
    sources: dict[tuple[int, int], str] = {}
    for report in reports:
        source = get_opt_out_source(report)
        for member, outcome in zip(report.members, report.outcomes, strict=True):
            # If a member both complained and unsubscribed, store the complaint.
            is_stronger = source == unsubscribe.SENDER_COMPLAINT or member.pair not in sources
            if source is not None and outcome is ReportOutcome.APPLIED and is_stronger:
                sources[member.pair] = source
    if not sources:
        return []
    pairs = sorted(sources)
    values = {"list_ids": [pair[0] for pair in pairs], "user_ids": [pair[1] for pair in pairs]}
    needed = [pairs[number] for number in uow.session.scalars(_NEEDED_OPT_OUTS, values)]
    return unsubscribe.record_reported_opt_outs(uow, {pair: sources[pair] for pair in needed})


def apply_reports(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    """Make all changes that result from reports, except members' opt-outs.

    Set the ``outcome`` of each report.

    Raises ``TransientError`` if another transaction has locked a list.
    """
    _apply_bounces(uow, sender, reports)
    _keep_addresses_opted_out(uow, sender, reports)
    count_reports(uow, sender, reports)
    for report in reports:
        if len(report.outcomes) == 1:
            [report.outcome] = report.outcomes
        elif report.outcomes:
            report.outcome = min(report.outcomes, key=_OUTCOME_ORDER.index)


def _apply_bounces(uow: UnitOfWork, sender: Sender, reports: Sequence[ReceivedReport]) -> None:
    """Record hard and soft bounces, and end soft bounces of members who received a later mail."""
    places: list[tuple[ReceivedReport, int]] = []
    reported: list[ReportedBounce] = []
    reached_mails: list[MemberMailing] = []
    for report, event, index, member, outcome in iterate_outcomes(reports):
        if outcome is ReportOutcome.STALE:
            continue
        if event.bounce_class in (BounceClass.HARD, BounceClass.SOFT):
            is_hard = event.bounce_class is BounceClass.HARD
            places.append((report, index))
            reported.append(ReportedBounce(member, is_hard, event.status))
        elif event.kind is ReportKind.DELIVERED or (
            event.kind in ENGAGEMENT_KINDS and not event.is_machine
        ):
            reached_mails.append(member)
    if not reported:
        bounce_reports.end_soft_bounces(uow, reached_mails)
        return
    covered = None if sender.any_list else sender.list_ids
    results = bounce_reports.record_bounces(
        uow, reported, covered_list_ids=covered, reached_mails=reached_mails
    )
    for (report, index), result in zip(places, results, strict=True):
        report.outcomes[index] = ReportOutcome(result.value)


def _keep_addresses_opted_out(
    uow: UnitOfWork, sender: Sender, reports: Iterable[ReceivedReport]
) -> None:
    """Store opt-outs for complaints and unsubscriptions of people who aren't members.

    The stored opt-outs contain an HMAC of the address instead of a person's id. If the report
    contains a valid delivery id, the opt-out applies only to the list of the reported mail. If the
    report contains no valid delivery id, the opt-out applies to all lists that the sender covers.

    The function stores no opt-out if the sender covers all lists of its owner, or the lists of all
    owners.
    """
    if sender.any_list or sender.list_ids is None:
        return
    digests: dict[str, bytes] = {}
    places: list[tuple[ReceivedReport, int]] = []
    for report in reports:
        if (
            get_opt_out_source(report) is not None
            and not report.members
            and report.address is not None
        ):
            if report.address not in digests:
                digests[report.address] = opt_out_checks.compute_address_digest(
                    uow.settings.keyring, report.address
                )
            list_ids = _choose_opted_out_lists(uow, sender.list_ids, report)
            places += [(report, list_id) for list_id in list_ids]
    for start in range(0, len(places), _MAX_OPT_OUTS_PER_STATEMENT):
        chunk = places[start : start + _MAX_OPT_OUTS_PER_STATEMENT]
        values = {
            "list_ids": [list_id for _, list_id in chunk],
            "digests": [digests[report.address or ""] for report, _ in chunk],
            "sources": [get_opt_out_source(report) for report, _ in chunk],
        }
        rows = uow.session.execute(_KEEP_ADDRESSES, values).all()
        added = {(list_id, bytes(digest)) for list_id, digest in rows}
        for report, list_id in chunk:
            key = (list_id, digests[report.address or ""])
            if key in added:
                # The first report that opts an address out of a list gets the outcome ``APPLIED``.
                # Later reports of the batch about the same address and list are duplicates.
                added.remove(key)
                report.outcome = ReportOutcome.APPLIED
            elif report.outcome is ReportOutcome.UNMATCHED:
                report.outcome = ReportOutcome.DUPLICATE


def _choose_opted_out_lists(
    uow: UnitOfWork, covered_ids: Sequence[int], report: ReceivedReport
) -> Sequence[int]:
    """Return the ids of the lists to which an opt-out applies if the recipient isn't a member."""
    if report.delivery is None:
        return covered_ids
    list_id = report.delivery.list_id
    values = {"address": report.address, "list_id": list_id}
    if list_id not in covered_ids or uow.session.scalar(_HAS_MEMBER, values):
        # The delivery id belongs to a person who isn't a member, for example to an erased person.
        # If somebody else is a member with the reported address, store no opt-out, because this
        # member didn't get the reported mail.
        return ()
    return (list_id,)
