"""Applies reports to members and mailings.

The number of SQL statements hardly depends on the number of reports in a batch. Only the opt-outs
of members are stored one by one, because opt-outs are rare.

``apply_opt_outs`` runs first and in its own transaction, so that an opt-out takes effect even while
a bulk action locks the list. ``apply_reports`` applies everything else. If ``apply_reports`` fails,
both functions run again. This is safe, because storing an opt-out twice has no effect.
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
from services.subscriptions.members.bounce_reports import MemberMailing, ReportedBounce
from storage.unit_of_work import UnitOfWork

# The maximum number of opt-outs that one SQL statement stores. A sender may name a thousand lists,
# so that the complaints in one batch may cause millions of opt-outs.
_MAX_OPT_OUTS_PER_STATEMENT = 10_000
# If a report has a different outcome on each of several lists, the first outcome here is shown.
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
# Insert the rows in a fixed order, to prevent deadlocks.
_KEEP_ADDRESSES = text("""
INSERT INTO opt_outs (list_id, address_hmac, kind, source)
SELECT list_id, address_hmac, 'list', source
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:digests AS bytea[]), CAST(:sources AS text[]))
    WITH ORDINALITY AS r (list_id, address_hmac, source, number)
ORDER BY list_id, address_hmac, number
ON CONFLICT DO NOTHING
RETURNING list_id, address_hmac
""")
# Returns the indexes of the members who have no opt-out, or have subscribed again despite it.
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


def choose_opt_outs(received: Iterable[ReceivedReport]) -> list[ReceivedReport]:
    """Return the complaints and unsubscriptions among the reports."""
    return [each for each in received if get_opt_out_source(each) is not None]


def apply_opt_outs(uow: UnitOfWork, received: Iterable[ReceivedReport]) -> list[int]:
    """Store an opt-out for each complaint and unsubscription, without a lock on a list.

    Return the ids of the jobs that unsubscribe the members (see ``record_reported_opt_outs``).
    """
    sources: dict[tuple[int, int], str] = {}
    for each in received:
        source = get_opt_out_source(each)
        for member, outcome in zip(each.members, each.outcomes, strict=True):
            # If a member has both, store the complaint instead of the unsubscription.
            is_stronger = source == unsubscribe.SENDER_COMPLAINT or member.pair not in sources
            if source is not None and outcome is ReportOutcome.APPLIED and is_stronger:
                sources[member.pair] = source
    if not sources:
        return []
    pairs = sorted(sources)
    values = {"list_ids": [pair[0] for pair in pairs], "user_ids": [pair[1] for pair in pairs]}
    needed = [pairs[number] for number in uow.session.scalars(_NEEDED_OPT_OUTS, values)]
    return unsubscribe.record_reported_opt_outs(uow, {pair: sources[pair] for pair in needed})


def apply_reports(uow: UnitOfWork, sender: Sender, received: Sequence[ReceivedReport]) -> None:
    """Apply all effects of the reports except the opt-outs of members, and fill in ``outcome``.

    Raises ``TransientError`` if another transaction holds the lock on a list.
    """
    _apply_bounces(uow, sender, received)
    _keep_addresses_opted_out(uow, sender, received)
    count_reports(uow, sender, received)
    for each in received:
        if len(each.outcomes) == 1:
            [each.outcome] = each.outcomes
        elif each.outcomes:
            each.outcome = min(each.outcomes, key=_OUTCOME_ORDER.index)


def _apply_bounces(uow: UnitOfWork, sender: Sender, received: Sequence[ReceivedReport]) -> None:
    """Record hard and soft bounces. A member's soft bounces end when a mail reaches the member."""
    places: list[tuple[ReceivedReport, int]] = []
    reported: list[ReportedBounce] = []
    reached: list[MemberMailing] = []
    for each, event, index, member, outcome in iterate_outcomes(received):
        if outcome is ReportOutcome.STALE:
            continue
        if event.bounce_class in (BounceClass.HARD, BounceClass.SOFT):
            is_hard = event.bounce_class is BounceClass.HARD
            places.append((each, index))
            reported.append(ReportedBounce(member, is_hard, event.status))
        elif event.kind is ReportKind.DELIVERED or (
            event.kind in ENGAGEMENT_KINDS and not event.is_machine
        ):
            reached.append(member)
    if not reported:
        bounce_reports.end_soft_bounces(uow, reached)
        return
    covered = None if sender.any_list else sender.list_ids
    results = bounce_reports.record_bounces(
        uow, reported, covered_list_ids=covered, reached=reached
    )
    for (each, index), result in zip(places, results, strict=True):
        each.outcomes[index] = ReportOutcome(result.value)


def _keep_addresses_opted_out(
    uow: UnitOfWork, sender: Sender, received: Iterable[ReceivedReport]
) -> None:
    """Store opt-outs for complaints and unsubscriptions of addresses that belong to no member.

    Such an opt-out contains an HMAC of the address instead of a person's id. The opt-outs apply
    only to lists whose ids the sender names. Otherwise, a sender could change another owner's list
    by guessing an address. If the report has a valid delivery id, the opt-out applies only to the
    list of the mail. The delivery id may belong to an erased person.
    """
    if sender.any_list or sender.list_ids is None:
        return
    digests: dict[str, bytes] = {}
    places: list[tuple[ReceivedReport, int]] = []
    for each in received:
        if get_opt_out_source(each) is not None and not each.members and each.address is not None:
            if each.address not in digests:
                digests[each.address] = opt_out_checks.compute_address_digest(
                    uow.settings.keyring, each.address
                )
            list_ids = _choose_opted_out_lists(uow, sender.list_ids, each)
            places += [(each, list_id) for list_id in list_ids]
    for start in range(0, len(places), _MAX_OPT_OUTS_PER_STATEMENT):
        chunk = places[start : start + _MAX_OPT_OUTS_PER_STATEMENT]
        values = {
            "list_ids": [list_id for _, list_id in chunk],
            "digests": [digests[each.address or ""] for each, _ in chunk],
            "sources": [get_opt_out_source(each) for each, _ in chunk],
        }
        rows = uow.session.execute(_KEEP_ADDRESSES, values).all()
        added = {(list_id, bytes(digest)) for list_id, digest in rows}
        for each, list_id in chunk:
            key = (list_id, digests[each.address or ""])
            if key in added:
                # If the batch contains the report twice, the second one is a duplicate.
                added.remove(key)
                each.outcome = ReportOutcome.APPLIED
            elif each.outcome is ReportOutcome.UNMATCHED:
                each.outcome = ReportOutcome.DUPLICATE


def _choose_opted_out_lists(
    uow: UnitOfWork, covered_ids: Sequence[int], received: ReceivedReport
) -> Sequence[int]:
    """Return the lists to which an opt-out applies if the report's address has no member."""
    if received.delivery is None:
        return covered_ids
    list_id = received.delivery.list_id
    values = {"address": received.address, "list_id": list_id}
    if list_id not in covered_ids or uow.session.scalar(_HAS_MEMBER, values):
        # A member with this address may be a different person who didn't get the mail.
        return ()
    return (list_id,)
