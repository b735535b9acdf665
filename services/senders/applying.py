"""Processes the reports in the stored bodies of senders' requests.

Only one worker at a time processes stored bodies. Senders take turns. A turn processes a batch of
bodies of one sender, and ends after a few seconds, so that a sender with many reports doesn't delay
the others. Members' opt-outs in the bodies of all senders come first.

A turn consists of several transactions with a limited number of reports and lists. The transaction
that processes the last reports of a body also deletes the body. If a worker is killed, the next
worker processes the remaining reports.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice

import psycopg2
from psycopg2.errors import DeadlockDetected, LockNotAvailable, QueryCanceled
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError

from core.errors import ServerFailed, TransientError
from core.logging import get_logger
from integrations.senders.port import (
    ParsedBody,
    TopicChange,
    UnusedEvent,
    UnusedReason,
)
from integrations.senders.sns import SnsMessageType
from models import Sender, SenderBody
from services.jobs.maintenance import register_maintenance
from services.senders import effects, states
from services.senders.adapters import get_sns_base_url
from services.senders.notices import FailureReason
from services.senders.recipients import (
    count_lists,
    estimate_costs,
    find_members,
    read_recipients,
)
from services.senders.report import ReceivedReport, describe_report
from services.senders.stored_bodies import (
    BODIES,
    ReadBody,
    claim_bodies,
    find_next_sender,
    has_due_body,
    read_body,
    record_failures,
    release_bodies,
)
from services.subscriptions.members import unsubscribe
from storage.array_texts import format_numbers, format_texts, format_times
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

MAX_RUN_SECONDS = 60.0
MAX_TURN_SECONDS = 2.0
# The maximum number of rows that a transaction changes, except members' opt-outs. A report can
# concern a thousand lists.
MAX_TRANSACTION_COST = 10_000
# The number of reports whose cost is estimated at the same time. Reading a hostile address takes a
# millisecond.
_ESTIMATED_REPORTS = 1_000
# Each opt-out takes several statements.
_MAX_OPT_OUTS_PER_TRANSACTION = 100
# If a request body can't be processed because another transaction has locked a list or a person, a
# worker tries again after this time.
_LOCKED_PAUSE = timedelta(seconds=3)
_ADD_REPORTS = text("""
INSERT INTO sender_reports (sender_id, received_at, occurred_at, kind, outcome, code, status,
    mailing_id, list_id, user_id, recipient)
SELECT :sender_id, * FROM unnest(CAST(:received_times AS timestamptz[]),
    CAST(:times AS timestamptz[]), CAST(:kinds AS text[]), CAST(:outcomes AS text[]),
    CAST(:codes AS text[]), CAST(:statuses AS text[]), CAST(:mailing_ids AS bigint[]),
    CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[]), CAST(:recipients AS text[]))
""")
_ADD_COUNTS = text("""
INSERT INTO sender_counts AS c (sender_id, hour, outcome, count)
SELECT :sender_id, date_trunc('hour', now()), r.outcome, r.count
FROM unnest(CAST(:outcomes AS text[]), CAST(:counts AS bigint[])) AS r (outcome, count)
ORDER BY r.outcome
ON CONFLICT (sender_id, hour, outcome) DO UPDATE SET count = c.count + excluded.count
""")


@dataclass(frozen=True)
class _Turn:
    """A batch of a sender's bodies, until ``ends_at`` on the clock ``time.monotonic``."""

    resources: Resources
    sender: Sender
    bodies: Sequence[ReadBody]
    lists: int
    ends_at: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.ends_at


def apply_waiting_bodies(resources: Resources) -> int:
    """Start turns for at most ``MAX_RUN_SECONDS``, and return the number of processed bodies."""
    ends_at = time.monotonic() + MAX_RUN_SECONDS
    applied = 0
    # The senders that had the last turn, by the two kinds of turns.
    last_ids = {True: 0, False: 0}
    while time.monotonic() < ends_at:
        with resources.unit_of_work() as uow:
            for for_opt_outs, last_id in last_ids.items():
                sender_id = find_next_sender(uow, last_id, for_opt_outs=for_opt_outs)
                if sender_id is not None:
                    break
            if sender_id is None:
                break
            last_ids[for_opt_outs] = sender_id
            rows = claim_bodies(uow, sender_id, for_opt_outs=for_opt_outs)
        applied += _take_turn(resources, sender_id, rows, for_opt_outs=for_opt_outs)
    return applied


APPLY_BODIES = register_maintenance(
    "senders.apply",
    every=timedelta(minutes=10),
    max_failure_pause=timedelta(seconds=5),
    run=lambda resources, _: apply_waiting_bodies(resources),
    has_work=has_due_body,
)


def _take_turn(
    resources: Resources, sender_id: int, rows: Sequence[SenderBody], *, for_opt_outs: bool
) -> int:
    """Return the number of processed bodies. After an error, bodies are processed one by one.

    If another transaction has locked a list or a person, don't wait, so that other senders' reports
    aren't delayed.
    """
    ids = [row.id for row in rows]
    try:
        return _process_bodies(resources, sender_id, rows, for_opt_outs=for_opt_outs)
    except Exception as error:  # Even if one request body fails, process the others.
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, TransientError | LockNotAvailable | DeadlockDetected):
            with resources.unit_of_work() as uow:
                release_bodies(uow, ids, pause=_LOCKED_PAUSE)
            return 0
        if isinstance(cause, psycopg2.OperationalError | psycopg2.InterfaceError) and not (
            isinstance(cause, QueryCanceled)
        ):
            # The database is unavailable, or the connection broke because of the bodies. The tries
            # remain unfinished.
            raise
        log.exception("senders.bodies_failed", sender_id=sender_id, bodies=len(ids))
        with resources.unit_of_work() as uow:
            record_failures(uow, ids, is_batch=len(ids) > 1)
        return 0


def _process_bodies(
    resources: Resources, sender_id: int, rows: Sequence[SenderBody], *, for_opt_outs: bool
) -> int:
    with resources.unit_of_work() as uow:
        sender = uow.session.get(Sender, sender_id)
        if sender is None or sender.deleted_at is not None:
            # Delete the remaining request bodies of a deleted sender without processing them.
            BODIES.delete_rows(uow, [row.id for row in rows])
            return 0
        lists = count_lists(uow, sender)
    # Parse the bodies outside of a transaction, because it takes seconds for hostile bodies.
    bodies = [read_body(resources, sender, row) for row in rows]
    ends_at = time.monotonic() + MAX_TURN_SECONDS
    turn = _Turn(resources, sender, _confirm_topic(resources, sender, bodies), lists, ends_at)
    job_ids: list[int] = []
    has_stored_all = _store_opt_outs(turn, job_ids)
    processed = 0
    if has_stored_all and not (for_opt_outs and _has_opt_outs_of_others(turn)):
        processed = _apply_reports(turn)
    if processed < len(turn.bodies):
        with resources.unit_of_work() as uow:
            remaining_ids = [body.id for body in turn.bodies[processed:]]
            release_bodies(uow, remaining_ids, has_opt_outs_applied=has_stored_all)
    unsubscribe.follow_opt_outs(resources, job_ids)
    return processed


def _has_opt_outs_of_others(turn: _Turn) -> bool:
    with turn.resources.unit_of_work() as uow:
        next_id = find_next_sender(uow, turn.sender.id, for_opt_outs=True)
    return next_id not in (None, turn.sender.id)


def _store_opt_outs(turn: _Turn, job_ids: list[int]) -> bool:
    """Add the unsubscribing jobs to ``job_ids``, and return whether all opt-outs are stored."""
    reports = effects.choose_opt_outs(
        report for body in turn.bodies if not body.has_opt_outs_applied for report in body.reports
    )
    while reports:
        batch = _choose_batch(turn, reports)
        reports = reports[len(batch) :]
        with turn.resources.unit_of_work() as uow:
            find_members(uow, turn.sender, batch)
            opt_outs = effects.find_missing_opt_outs(uow, batch)
        pairs = sorted(opt_outs)
        for start in range(0, len(pairs), _MAX_OPT_OUTS_PER_TRANSACTION):
            # Check the time only after storing opt-outs, so that each turn makes progress.
            if start and turn.is_over:
                return False
            end = start + _MAX_OPT_OUTS_PER_TRANSACTION
            chunk = {pair: opt_outs[pair] for pair in pairs[start:end]}
            with turn.resources.unit_of_work() as uow:
                job_ids += unsubscribe.record_reported_opt_outs(uow, chunk)
        if pairs and reports and turn.is_over:
            return False
    return True


def _choose_batch(turn: _Turn, reports: Sequence[ReceivedReport]) -> Sequence[ReceivedReport]:
    total = 0
    for start in range(0, len(reports), _ESTIMATED_REPORTS):
        candidates = reports[start : start + _ESTIMATED_REPORTS]
        read_recipients(candidates, turn.resources.keyring)
        costs = [1] * len(candidates)
        if turn.lists > 1:
            with turn.resources.unit_of_work() as uow:
                costs = estimate_costs(uow, turn.sender, turn.lists, candidates)
        for number, cost in enumerate(costs, start):
            total += cost
            # Process at least one report, even if its cost is higher.
            if number and total > MAX_TRANSACTION_COST:
                return reports[:number]
        if turn.is_over:
            return reports[: start + len(candidates)]
    return reports


def _apply_reports(turn: _Turn) -> int:
    processed = 0
    while processed < len(turn.bodies):
        bodies = turn.bodies[processed:]
        reports = chain.from_iterable(body.reports for body in bodies)
        batch = _choose_batch(turn, [*islice(reports, MAX_TRANSACTION_COST)])
        processed += _apply_batch(turn, bodies, batch)
        if turn.is_over:
            break
    return processed


def _apply_batch(turn: _Turn, bodies: Sequence[ReadBody], reports: Sequence[ReceivedReport]) -> int:
    room = len(reports)
    finished: list[ReadBody] = []
    begun: ReadBody | None = None
    for body in bodies:
        if len(body.reports) > room:
            begun = body if room else None
            break
        room -= len(body.reports)
        finished.append(body)
    expected = {body.id: body.applied_reports for body in [*finished, *([begun] if begun else [])]}
    with turn.resources.unit_of_work() as uow:
        query = select(SenderBody.id, SenderBody.applied_reports)
        query = query.where(SenderBody.id.in_(expected)).with_for_update(skip_locked=True)
        locked = {row.id: row.applied_reports for row in uow.session.execute(query)}
        if locked != expected:
            raise TransientError("Another worker is processing the reports.")
        find_members(uow, turn.sender, reports)
        effects.apply_reports(uow, turn.sender, reports)
        _store_reports(uow, turn.sender.id, reports)
        if finished:
            _record_bodies(uow, turn.sender.id, finished)
            BODIES.delete_rows(uow, [body.id for body in finished])
        if begun:
            statement = update(SenderBody).where(SenderBody.id == begun.id)
            uow.session.execute(statement.values(applied_reports=begun.applied_reports + room))
    if begun:
        begun.reports = begun.reports[room:]
        begun.applied_reports += room
    return len(finished)


def _confirm_topic(
    resources: Resources, sender: Sender, bodies: Sequence[ReadBody]
) -> Sequence[ReadBody]:
    """Confirm the sender's subscription to a topic if Amazon SNS asks for it.

    Return the bodies that the caller must process now. If Amazon SNS is unreachable, the result
    omits the requests for confirmation, which are retried for a day. If Amazon SNS rejects the
    confirmation, these requests become invalid events.
    """
    # Import this module here, because it loads an HTTP library that only confirmations need.
    from integrations.senders.sns_subscriptions import confirm_subscription

    requesting = [body for body in bodies if body.content.topic_change is TopicChange.CONFIRM]
    if not requesting:
        return bodies
    # Each request of Amazon SNS to confirm the subscription contains a token. The token of the
    # latest request is enough, because the tokens of all requests confirm the same subscription.
    token = requesting[-1].content.confirmation_token or ""
    try:
        is_confirmed = confirm_subscription(
            sender.topic_arn or "", token, get_sns_base_url(resources)
        )
    except ServerFailed as failure:
        log.warning("senders.topic_not_confirmed", sender_id=sender.id, reason=str(failure))
        ids = {body.id for body in requesting}
        with resources.unit_of_work() as uow:
            record_failures(uow, ids, is_batch=False)
        return [body for body in bodies if body.id not in ids]
    log.info("senders.topic_answered", sender_id=sender.id, is_confirmed=is_confirmed)
    if is_confirmed:
        return bodies
    event = UnusedEvent(UnusedReason.INVALID, SnsMessageType.SUBSCRIPTION.value)
    for body in requesting:
        body.content = ParsedBody((event,))
        body.reports = [ReceivedReport(event, body.received_at)]
    return bodies


def _record_bodies(uow: UnitOfWork, sender_id: int, bodies: Sequence[ReadBody]) -> None:
    changes = [body.content.topic_change for body in bodies if body.content.topic_change]
    states.record_bodies(
        uow,
        sender_id,
        has_reports=any(
            not isinstance(event, UnusedEvent) or event.reason is not UnusedReason.INVALID
            for body in bodies
            for event in body.content.events
        ),
        is_confirmed=TopicChange.CONFIRM in changes,
        warnings=bodies[-1].content.warnings,
    )
    if changes and changes[-1] is TopicChange.UNSUBSCRIBED:
        states.mark_failing(uow, sender_id, FailureReason.TOPIC_UNSUBSCRIBED)


def _store_reports(uow: UnitOfWork, sender_id: int, reports: Sequence[ReceivedReport]) -> None:
    if reports:
        facts = [describe_report(report) for report in reports]
        kinds, outcomes, codes, statuses, mailing_ids, list_ids, user_ids, recipients = zip(
            *facts, strict=True
        )
        values = {
            "sender_id": sender_id,
            "received_times": format_times(report.received_at for report in reports),
            "times": format_times(report.occurred_at for report in reports),
            "kinds": format_texts(kinds),
            "outcomes": format_texts(outcomes),
            "codes": format_texts(codes),
            "statuses": format_texts(statuses),
            "mailing_ids": format_numbers(mailing_ids),
            "list_ids": format_numbers(list_ids),
            "user_ids": format_numbers(user_ids),
            "recipients": format_texts(recipients),
        }
        uow.session.execute(_ADD_REPORTS, values)
    counts = Counter(report.outcome.value for report in reports)
    uow.session.execute(
        _ADD_COUNTS,
        {"sender_id": sender_id, "outcomes": [*counts.keys()], "counts": [*counts.values()]},
    )
