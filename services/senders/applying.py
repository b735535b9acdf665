"""Processes the reports in the stored bodies of senders' requests, in batches.

A sender, such as a mail provider, posts reports about mails in the bodies of its requests. Only one
worker at a time processes stored request bodies. A batch contains request bodies of a single
sender. The next batch contains request bodies of another sender, so that a sender with many request
bodies doesn't delay the other senders.

The transaction that processes a batch of request bodies also deletes the request bodies. If a
worker is killed before this transaction commits, the next worker processes the whole batch again.
"""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import psycopg2
from psycopg2.errors import DeadlockDetected, LockNotAvailable, QueryCanceled
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.exc import DBAPIError

from core.errors import DomainError, ServerFailed, TransientError
from core.logging import get_logger
from integrations.senders.port import (
    ParsedBody,
    SenderProvider,
    TopicChange,
    UnusedEvent,
    UnusedReason,
)
from integrations.senders.sns import SnsMessageType
from models import Sender, SenderBody
from services.jobs.maintenance import register_maintenance
from services.senders import effects, states
from services.senders.adapters import get_adapter, get_sns_base_url
from services.senders.notices import FailureReason
from services.senders.received_reports import ReceivedReport, describe_report
from services.senders.report_members import find_members
from services.subscriptions.members import unsubscribe
from storage.array_texts import format_numbers, format_texts, format_times
from storage.database import Statement
from storage.encryption import DecryptionFailed, WrappedKey, decrypt
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

MAX_RUN_SECONDS = 60.0
MAX_BATCH_BODIES = 500
MAX_BATCH_BYTES = 1024 * 1024
# If a request body can't be processed because another transaction has locked a list or a person, a
# worker tries again after this time.
_LOCKED_PAUSE = timedelta(seconds=3)
# How long to wait after the first failed attempt to process a request body. The wait doubles with
# each further failed attempt.
_FAILURE_PAUSE = timedelta(seconds=10)
_MAX_PAUSE_DOUBLINGS = 8
_HAS_DUE_BODY = Statement(
    "SELECT EXISTS (SELECT FROM sender_bodies WHERE due_at <= now() OFFSET 0)"
)
_FIND_NEXT_SENDER = text("""
SELECT sender_id FROM sender_bodies WHERE sender_id > :after AND due_at <= now()
ORDER BY sender_id LIMIT 1
""")
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


class _WaitingBody(NamedTuple):
    id: int
    received_at: datetime
    context: str
    wrapped_key: bytes
    wrapped_by: str
    body: bytes


@dataclass(frozen=True)
class _ReadBody:
    """The decrypted and parsed body of a sender's request."""

    id: int
    received_at: datetime
    content: ParsedBody


def has_waiting_bodies(resources: Resources) -> bool:
    [(has_body,)] = resources.database.rows(_HAS_DUE_BODY)
    return bool(has_body)


def apply_waiting_bodies(resources: Resources) -> int:
    """Process the stored request bodies of all senders, and return the number of processed ones.

    After ``MAX_RUN_SECONDS``, the function starts no further batch.
    """
    ends_at = time.monotonic() + MAX_RUN_SECONDS
    applied = 0
    sender_id = 0
    while time.monotonic() < ends_at:
        with resources.unit_of_work() as uow:
            next_id = uow.session.scalar(_FIND_NEXT_SENDER, {"after": sender_id})
        if next_id is None:
            if sender_id == 0:
                return applied
            # The loop has processed one batch of each sender, so continue with the next batch of
            # the first sender.
            sender_id = 0
            continue
        sender_id = next_id
        applied += _apply_batch(resources, sender_id)
    return applied


APPLY_BODIES = register_maintenance(
    "senders.apply",
    every=timedelta(minutes=10),
    max_failure_pause=timedelta(seconds=5),
    run=lambda resources, _: apply_waiting_bodies(resources),
    has_work=has_waiting_bodies,
)


def _apply_batch(resources: Resources, sender_id: int) -> int:
    """Process a sender's next batch of request bodies, and return the number of processed ones."""
    with resources.unit_of_work() as uow:
        ids = _choose_bodies(uow, sender_id)
    return _apply_or_postpone(resources, sender_id, ids)


def _apply_or_postpone(resources: Resources, sender_id: int, ids: Sequence[int]) -> int:
    """Process request bodies as one batch, and return the number of processed ones.

    If an error occurs, process the request bodies one by one, and schedule another attempt for each
    request body that fails again. If another transaction has locked a list or a person, don't wait
    for the lock: schedule another attempt for all of these request bodies, so that other senders'
    reports aren't delayed.
    """
    try:
        _apply_bodies(resources, sender_id, ids)
    except Exception as error:  # Even if one request body fails, process the others.
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, TransientError | LockNotAvailable | DeadlockDetected):
            _postpone(resources, ids, is_failure=False)
            return 0
        if isinstance(cause, psycopg2.OperationalError | psycopg2.InterfaceError) and not (
            isinstance(cause, QueryCanceled)
        ):
            # The database is unavailable.
            raise
        log.exception("senders.bodies_failed", sender_id=sender_id, bodies=len(ids))
        if len(ids) > 1:
            return sum(_apply_or_postpone(resources, sender_id, [body_id]) for body_id in ids)
        _postpone(resources, ids, is_failure=True)
        return 0
    return len(ids)


def _choose_bodies(uow: UnitOfWork, sender_id: int) -> list[int]:
    query = select(SenderBody.id, SenderBody.size).where(
        SenderBody.sender_id == sender_id, SenderBody.due_at <= func.now()
    )
    rows = uow.session.execute(query.order_by(SenderBody.id).limit(MAX_BATCH_BODIES)).all()
    ids: list[int] = []
    free_bytes = MAX_BATCH_BYTES
    for body_id, size in rows:
        if ids and size > free_bytes:
            break
        ids.append(body_id)
        free_bytes -= size
    return ids


def _apply_bodies(resources: Resources, sender_id: int, ids: Sequence[int]) -> None:
    with resources.unit_of_work() as uow:
        sender = uow.session.get(Sender, sender_id)
        if sender is not None and sender.deleted_at is not None:
            # Delete the remaining request bodies of a deleted sender without processing them.
            uow.session.execute(delete(SenderBody).where(SenderBody.id.in_(ids)))
            return
        rows = _load_bodies(uow, ids)
    if sender is None or not rows:
        return
    bodies = _confirm_topic(resources, sender, _read_bodies(resources, sender, rows))
    if not bodies:
        return
    reports = [
        ReceivedReport(event, body.received_at) for body in bodies for event in body.content.events
    ]
    opt_outs = effects.choose_opt_outs(reports)
    job_ids: list[int] = []
    if opt_outs:
        with resources.unit_of_work() as uow:
            find_members(uow, sender, opt_outs)
            job_ids = effects.apply_opt_outs(uow, opt_outs)
    with resources.unit_of_work() as uow:
        query = select(SenderBody.id).where(SenderBody.id.in_([body.id for body in bodies]))
        locked_ids = uow.session.scalars(query.with_for_update(skip_locked=True)).all()
        if len(locked_ids) != len(bodies):
            # Another worker is already processing some of the request bodies, or the sender has
            # just been deleted.
            return
        find_members(uow, sender, reports)
        effects.apply_reports(uow, sender, reports)
        _store_reports(uow, sender_id, reports)
        _record_bodies(uow, sender_id, bodies)
        uow.session.execute(delete(SenderBody).where(SenderBody.id.in_(locked_ids)))
    unsubscribe.follow_opt_outs(resources, job_ids)


def _load_bodies(uow: UnitOfWork, ids: Sequence[int]) -> list[_WaitingBody]:
    columns = (
        *(SenderBody.id, SenderBody.received_at, SenderBody.context, SenderBody.wrapped_key),
        *(SenderBody.wrapped_by, SenderBody.body),
    )
    query = select(*columns).where(SenderBody.id.in_(ids)).order_by(SenderBody.id)
    return [_WaitingBody(*row) for row in uow.session.execute(query)]


def _read_bodies(
    resources: Resources, sender: Sender, rows: Sequence[_WaitingBody]
) -> list[_ReadBody]:
    adapter = get_adapter(resources, SenderProvider(sender.provider))
    bodies: list[_ReadBody] = []
    for row in rows:
        content = ParsedBody((UnusedEvent(UnusedReason.INVALID),))
        # A request body is invalid if it can't be parsed, or if an operator has removed the key
        # that encrypts the request body.
        with suppress(DecryptionFailed, DomainError):
            wrapped = WrappedKey(row.wrapped_by, bytes(row.wrapped_key))
            data_key = resources.key_wrapper.unwrap(wrapped, row.context)
            content = adapter.parse(decrypt(bytes(row.body), data_key, row.context))
        bodies.append(_ReadBody(row.id, row.received_at, content))
    return bodies


def _confirm_topic(
    resources: Resources, sender: Sender, bodies: Sequence[_ReadBody]
) -> Sequence[_ReadBody]:
    """Answer Amazon SNS's request to confirm the sender's subscription to a topic, if there is one.

    Return the request bodies that the caller must process now. If Amazon SNS is unreachable, the
    result omits the requests that ask Pressroom to confirm the subscription, and a worker retries
    the confirmation later. Pressroom deletes a request for the confirmation after a day, even if
    the subscription wasn't confirmed. If Amazon SNS rejects the confirmation, the function replaces
    the content of each request that asked for the confirmation with an invalid event.
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
        _postpone(resources, ids, is_failure=True)
        return [body for body in bodies if body.id not in ids]
    log.info("senders.topic_answered", sender_id=sender.id, is_confirmed=is_confirmed)
    if is_confirmed:
        return bodies
    invalid = ParsedBody((UnusedEvent(UnusedReason.INVALID, SnsMessageType.SUBSCRIPTION.value),))
    return [replace(body, content=invalid) if body in requesting else body for body in bodies]


def _record_bodies(uow: UnitOfWork, sender_id: int, bodies: Sequence[_ReadBody]) -> None:
    """Update a sender's state and warnings after a batch of the sender's requests was processed."""
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
    """Add the reports to the sender's recent reports, and update the sender's hourly counts."""
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


def _postpone(resources: Resources, ids: Collection[int], *, is_failure: bool) -> None:
    with resources.unit_of_work() as uow:
        statement = update(SenderBody).where(SenderBody.id.in_(ids))
        if is_failure:
            doublings = func.least(SenderBody.failures, _MAX_PAUSE_DOUBLINGS)
            pause = func.power(2, doublings) * _FAILURE_PAUSE
            statement = statement.values(
                failures=func.least(SenderBody.failures + 1, 1000), due_at=func.now() + pause
            )
        else:
            statement = statement.values(due_at=func.now() + _LOCKED_PAUSE)
        uow.session.execute(statement.execution_options(synchronize_session=False))
