"""Applies the stored request bodies of senders in batches.

Only one worker applies bodies at a time. A batch contains bodies of a single sender. The next batch
takes the next sender, so that a sender with many bodies doesn't delay the others. The transaction
that applies a batch also deletes the batch's bodies. If a worker is killed before this transaction
commits, the next worker applies the whole batch again.
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

from core import clock
from core.errors import DomainError, ServerFailed, TransientError
from core.errors.senders import REPORT_TOO_MANY
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
MAX_TRIED_REPORTS = 1_000
MAX_BATCH_BODIES = 500
MAX_BATCH_BYTES = 1024 * 1024
# The pause before the next attempt if another transaction holds a lock on a list or a person.
_LOCKED_PAUSE = timedelta(seconds=3)
# The pause after a body's first failed attempt. Each further failed attempt doubles the pause.
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
    """A decrypted and parsed body."""

    id: int
    received_at: datetime
    content: ParsedBody


class _Undo(Exception):
    """Raised to roll back the transaction of a trial run."""


def has_waiting_bodies(resources: Resources) -> bool:
    [(has_body,)] = resources.database.rows(_HAS_DUE_BODY)
    return bool(has_body)


def apply_waiting_bodies(resources: Resources) -> int:
    """Apply waiting bodies, and return the number of applied bodies.

    The last batch starts within ``MAX_RUN_SECONDS``.
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
            # Every sender had a turn. Start again with the first sender.
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


def run_trial(resources: Resources, sender: Sender, body: bytes) -> list[ReceivedReport]:
    """Return the outcomes that the reports in a request body would have. Nothing changes.

    For the provider ``generic``, raises the same errors as the adapter's parser. Raises
    ``report.too_many`` for more than ``MAX_TRIED_REPORTS`` reports, because the caller waits for
    the result. Raises ``TransientError`` if another transaction holds the lock on a list.
    """
    adapter = get_adapter(resources, SenderProvider(sender.provider))
    received = [ReceivedReport(event, clock.now()) for event in adapter.parse(body).events]
    if len(received) > MAX_TRIED_REPORTS:
        raise REPORT_TOO_MANY(most=MAX_TRIED_REPORTS)
    with suppress(_Undo), resources.unit_of_work() as uow:
        find_members(uow, sender, received)
        # ``apply_opt_outs`` isn't called, because it changes no outcome and may be slow.
        effects.apply_reports(uow, sender, received)
        raise _Undo
    return received


def _apply_batch(resources: Resources, sender_id: int) -> int:
    """Apply the next batch of a sender's bodies. Return how many bodies were applied."""
    with resources.unit_of_work() as uow:
        ids = _choose_bodies(uow, sender_id)
    return _apply_or_postpone(resources, sender_id, ids)


def _apply_or_postpone(resources: Resources, sender_id: int, ids: Sequence[int]) -> int:
    """Apply bodies together. If an error occurs, apply each body separately.

    A body that also fails separately is postponed. If another transaction has locked a list or a
    person, all of the bodies are postponed. Otherwise, the bodies of other senders would wait for
    the lock. Return the number of applied bodies.
    """
    try:
        _apply_bodies(resources, sender_id, ids)
    except Exception as error:  # The other bodies must be applied even if one body fails.
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
            # The bodies were arriving or locked while the sender was deleted.
            uow.session.execute(delete(SenderBody).where(SenderBody.id.in_(ids)))
            return
        rows = _load_bodies(uow, ids)
    if sender is None or not rows:
        return
    bodies = _confirm_topic(resources, sender, _read_bodies(resources, sender, rows))
    if not bodies:
        return
    received = [
        ReceivedReport(event, body.received_at) for body in bodies for event in body.content.events
    ]
    opt_outs = effects.choose_opt_outs(received)
    job_ids: list[int] = []
    if opt_outs:
        with resources.unit_of_work() as uow:
            find_members(uow, sender, opt_outs)
            job_ids = effects.apply_opt_outs(uow, opt_outs)
    with resources.unit_of_work() as uow:
        query = select(SenderBody.id).where(SenderBody.id.in_([body.id for body in bodies]))
        locked_ids = uow.session.scalars(query.with_for_update(skip_locked=True)).all()
        if len(locked_ids) != len(bodies):
            # Another worker is applying the bodies, or the sender was deleted in the meantime.
            return
        find_members(uow, sender, received)
        effects.apply_reports(uow, sender, received)
        _store_reports(uow, sender_id, received)
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
        # If an operator has removed the body's encryption key, the body counts as invalid.
        with suppress(DecryptionFailed, DomainError):
            wrapped = WrappedKey(row.wrapped_by, bytes(row.wrapped_key))
            data_key = resources.key_wrapper.unwrap(wrapped, row.context)
            content = adapter.parse(decrypt(bytes(row.body), data_key, row.context))
        bodies.append(_ReadBody(row.id, row.received_at, content))
    return bodies


def _confirm_topic(
    resources: Resources, sender: Sender, bodies: Sequence[_ReadBody]
) -> Sequence[_ReadBody]:
    """Confirm the subscription to the sender's topic if a body asks for the confirmation.

    If SNS is unreachable, postpone the bodies that ask for the confirmation, and return all other
    bodies. The attempts end after a day, because retention then deletes the waiting bodies. If SNS
    refuses the token, the bodies that ask for the confirmation count as invalid.
    """
    # Import the HTTP library only here, because many commands import this module.
    from integrations.senders.sns_subscriptions import confirm_subscription

    asking = [body for body in bodies if body.content.topic_change is TopicChange.CONFIRM]
    if not asking:
        return bodies
    # The latest token is enough, because all tokens confirm the same subscription.
    token = asking[-1].content.confirmation_token or ""
    try:
        is_confirmed = confirm_subscription(
            sender.topic_arn or "", token, get_sns_base_url(resources)
        )
    except ServerFailed as failure:
        log.warning("senders.topic_not_confirmed", sender_id=sender.id, reason=str(failure))
        ids = {body.id for body in asking}
        _postpone(resources, ids, is_failure=True)
        return [body for body in bodies if body.id not in ids]
    log.info("senders.topic_answered", sender_id=sender.id, is_confirmed=is_confirmed)
    if is_confirmed:
        return bodies
    refused = ParsedBody((UnusedEvent(UnusedReason.INVALID, SnsMessageType.SUBSCRIPTION.value),))
    return [replace(body, content=refused) if body in asking else body for body in bodies]


def _record_bodies(uow: UnitOfWork, sender_id: int, bodies: Sequence[_ReadBody]) -> None:
    """Update the sender's state and warnings after the bodies were applied."""
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


def _store_reports(uow: UnitOfWork, sender_id: int, received: Sequence[ReceivedReport]) -> None:
    """Add rows to the list of recent reports, and update the sender's hourly counts."""
    if received:
        facts = [describe_report(each) for each in received]
        kinds, outcomes, codes, statuses, mailing_ids, list_ids, user_ids, recipients = zip(
            *facts, strict=True
        )
        values = {
            "sender_id": sender_id,
            "received_times": format_times(each.received_at for each in received),
            "times": format_times(each.occurred_at for each in received),
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
    counts = Counter(each.outcome.value for each in received)
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
