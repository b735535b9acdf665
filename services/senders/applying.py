"""Applies the stored request bodies of senders in batches.

Only one worker applies bodies at a time. A batch contains bodies of a single sender. The next batch
takes the next sender, so that a sender with many bodies doesn't delay the others. The transaction
that applies a batch also deletes the batch's bodies. If a worker is killed before this transaction
commits, the next worker applies the whole batch again.
"""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import case, delete, func, select, text, update
from sqlalchemy.exc import InterfaceError, OperationalError

from core import clock
from core.errors import DomainError, TransientError
from core.logging import get_logger
from integrations.senders import registry
from integrations.senders.port import (
    ParsedBody,
    SenderProvider,
    UnusedEvent,
    UnusedReason,
)
from models import Sender, SenderBody, SenderState
from services.jobs.maintenance import register_maintenance
from services.senders import effects
from services.senders.effects import ReceivedReport
from storage.database import Statement
from storage.encryption import DecryptionFailed, WrappedKey, decrypt
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

MAX_RUN_SECONDS = 60.0
MAX_BATCH_BODIES = 500
MAX_BATCH_BYTES = 1024 * 1024
# The pause before the next attempt if another transaction holds the lock on a list.
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
    ``TransientError`` if another transaction holds the lock on a list.
    """
    adapter = registry.get_adapter(SenderProvider(sender.provider))
    received = [ReceivedReport(event, clock.now()) for event in adapter.parse(body).events]
    with suppress(_Undo), resources.unit_of_work() as uow:
        effects.find_members(uow, sender, received)
        effects.apply_opt_outs(uow, received)
        effects.apply_reports(uow, sender, received)
        raise _Undo
    return received


def _apply_batch(resources: Resources, sender_id: int) -> int:
    """Apply the next batch of a sender's bodies. Return the number of applied bodies."""
    with resources.unit_of_work() as uow:
        ids = _choose_bodies(uow, sender_id)
    return _apply_or_postpone(resources, sender_id, ids)


def _apply_or_postpone(resources: Resources, sender_id: int, ids: Sequence[int]) -> int:
    """Apply bodies together. If an error occurs, apply each body separately.

    A body that also fails separately is postponed. If another transaction holds the lock on a list,
    all of the bodies are postponed. Return the number of applied bodies.
    """
    try:
        _apply_bodies(resources, sender_id, ids)
    except (OperationalError, InterfaceError):
        raise
    except TransientError:
        _postpone(resources, ids, is_failure=False)
        return 0
    except Exception:  # The other bodies must be applied even if one body fails.
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
        bodies = _load_bodies(uow, ids)
    if sender is None or not bodies:
        return
    received = _read_bodies(resources, sender, bodies)
    if effects.has_opt_outs(received):
        with resources.unit_of_work() as uow:
            effects.find_members(uow, sender, received)
            effects.apply_opt_outs(uow, received)
    with resources.unit_of_work() as uow:
        query = select(SenderBody.id).where(SenderBody.id.in_([body.id for body in bodies]))
        locked_ids = uow.session.scalars(query.with_for_update(skip_locked=True)).all()
        if len(locked_ids) != len(bodies):
            # Another worker is applying the bodies, or the sender was deleted in the meantime.
            return
        effects.find_members(uow, sender, received)
        effects.apply_reports(uow, sender, received)
        _store_reports(uow, sender_id, received)
        uow.session.execute(delete(SenderBody).where(SenderBody.id.in_(locked_ids)))


def _load_bodies(uow: UnitOfWork, ids: Sequence[int]) -> list[_WaitingBody]:
    columns = (
        *(SenderBody.id, SenderBody.received_at, SenderBody.context, SenderBody.wrapped_key),
        *(SenderBody.wrapped_by, SenderBody.body),
    )
    query = select(*columns).where(SenderBody.id.in_(ids)).order_by(SenderBody.id)
    return [_WaitingBody(*row) for row in uow.session.execute(query)]


def _read_bodies(
    resources: Resources, sender: Sender, bodies: Sequence[_WaitingBody]
) -> list[ReceivedReport]:
    provider = SenderProvider(sender.provider)
    received: list[ReceivedReport] = []
    for row in bodies:
        try:
            wrapped = WrappedKey(row.wrapped_by, bytes(row.wrapped_key))
            data_key = resources.key_wrapper.unwrap(wrapped, row.context)
            body = decrypt(bytes(row.body), data_key, row.context)
        except DecryptionFailed:
            # The operator has removed the encryption key of this body.
            received.append(ReceivedReport(UnusedEvent(UnusedReason.INVALID), row.received_at))
            continue
        received += _read_reports(provider, body, row.received_at)
    return received


def _read_reports(
    provider: SenderProvider, body: bytes, received_at: datetime
) -> list[ReceivedReport]:
    try:
        parsed = registry.get_adapter(provider).parse(body)
    except DomainError:
        parsed = ParsedBody((UnusedEvent(UnusedReason.INVALID),))
    return [ReceivedReport(event, received_at) for event in parsed.events]


def _store_reports(uow: UnitOfWork, sender_id: int, received: Sequence[ReceivedReport]) -> None:
    """Add rows to the list of recent reports, and update the sender's hourly counts and state."""
    columns = [
        (each.received_at, each.occurred_at, *effects.describe_report(each)) for each in received
    ]
    names = (
        *("received_times", "times", "kinds", "outcomes", "codes", "statuses"),
        *("mailing_ids", "list_ids", "user_ids", "recipients"),
    )
    if columns:
        values = dict(zip(names, map(list, zip(*columns, strict=True)), strict=True))
        uow.session.execute(_ADD_REPORTS, {"sender_id": sender_id, **values})
    counts = Counter(each.outcome.value for each in received)
    uow.session.execute(
        _ADD_COUNTS,
        {"sender_id": sender_id, "outcomes": [*counts.keys()], "counts": [*counts.values()]},
    )
    is_paused = Sender.state == SenderState.PAUSED
    statement = update(Sender).where(Sender.id == sender_id)
    statement = statement.values(
        last_report_at=func.now(),
        state=case((is_paused, Sender.state), else_=SenderState.WORKING.value),
        updated_at=Sender.updated_at,
    )
    uow.session.execute(statement.execution_options(synchronize_session=False))


def _postpone(resources: Resources, ids: Sequence[int], *, is_failure: bool) -> None:
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
