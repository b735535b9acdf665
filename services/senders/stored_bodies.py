"""Chooses and reads the stored bodies of senders' requests."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select

from core import clock
from core.errors import DomainError
from core.logging import get_logger
from core.pauses import Pauses
from integrations.senders.port import ParsedBody, SenderProvider, UnusedEvent, UnusedReason
from models import Sender, SenderBody
from services.jobs.pauses import build_pause
from services.jobs.waiting_work import MAX_UNFINISHED_TRIES, WorkQueue
from services.senders.adapters import get_adapter
from services.senders.report import ReceivedReport
from storage.database import Statement
from storage.encryption import DecryptionFailed, WrappedKey, decrypt
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

MAX_BATCH_BODIES = 500
MAX_BATCH_BYTES = 1024 * 1024
BODIES = WorkQueue(SenderBody, Pauses.double(timedelta(seconds=10), timedelta(minutes=45)))
INVALID = ParsedBody((UnusedEvent(UnusedReason.INVALID),))
# Maintenance deletes bodies after a day. A body that has failed until then is given up before.
_GIVE_UP_AGE = timedelta(hours=23)
_HAS_DUE_BODY = Statement(
    "SELECT EXISTS (SELECT FROM sender_bodies WHERE due_at <= now() OFFSET 0)"
)


@dataclass
class ReadBody:
    """``reports`` omits the processed reports, whose number is ``applied_reports``."""

    id: int
    received_at: datetime
    content: ParsedBody
    reports: list[ReceivedReport]
    applied_reports: int
    has_opt_outs_applied: bool


def has_due_body(resources: Resources) -> bool:
    [(has_body,)] = resources.database.rows(_HAS_DUE_BODY)
    return bool(has_body)


def find_next_sender(uow: UnitOfWork, after: int, *, for_opt_outs: bool) -> int | None:
    """Return the first sender above ``after`` with a due body, or else the first one."""
    query = select(SenderBody.sender_id).where(SenderBody.due_at <= func.now())
    if for_opt_outs:
        query = query.where(~SenderBody.has_opt_outs_applied)
    query = query.order_by(SenderBody.sender_id).limit(1)
    next_id = uow.session.scalar(query.where(SenderBody.sender_id > after))
    return uow.session.scalar(query) if next_id is None and after else next_id


def claim_bodies(uow: UnitOfWork, sender_id: int, *, for_opt_outs: bool) -> list[SenderBody]:
    """Begin a try of a sender's oldest due bodies.

    The caller must commit before it processes the bodies. If an earlier try of a body failed or
    didn't end, the batch contains only this body. A further failure then shows which body is at
    fault.
    """
    query = BODIES.select_due(
        SenderBody.id, SenderBody.size, SenderBody.failures, SenderBody.unfinished_tries
    )
    query = query.where(SenderBody.sender_id == sender_id)
    if for_opt_outs:
        query = query.where(~SenderBody.has_opt_outs_applied)
    query = query.order_by(SenderBody.id).limit(MAX_BATCH_BODIES)
    ids: list[int] = []
    free_bytes = MAX_BATCH_BYTES
    for row in uow.session.execute(query):
        is_alone = row.failures > 0 or row.unfinished_tries > 0
        if ids and (is_alone or row.size > free_bytes):
            break
        ids.append(row.id)
        free_bytes -= row.size
        if is_alone:
            break
    return BODIES.begin_tries(uow, ids)


def read_body(resources: Resources, sender: Sender, row: SenderBody) -> ReadBody:
    """A body is invalid if it can't be parsed, if an operator has removed the key that encrypts it,
    or if it is given up after many tries.
    """
    content = INVALID
    if _is_given_up(row):
        log.error("senders.body_given_up", sender_id=sender.id, body_id=row.id)
    else:
        adapter = get_adapter(resources, SenderProvider(sender.provider))
        with suppress(DecryptionFailed, DomainError):
            wrapped = WrappedKey(row.wrapped_by, bytes(row.wrapped_key))
            data_key = resources.key_wrapper.unwrap(wrapped, row.context)
            content = adapter.parse(decrypt(bytes(row.body), data_key, row.context))
    skipped = 0 if content is INVALID else row.applied_reports
    return ReadBody(
        id=row.id,
        received_at=row.received_at,
        content=content,
        reports=[ReceivedReport(event, row.received_at) for event in content.events[skipped:]],
        applied_reports=row.applied_reports,
        has_opt_outs_applied=row.has_opt_outs_applied,
    )


def _is_given_up(row: SenderBody) -> bool:
    """Count the try in progress as unfinished."""
    is_old = clock.now() - row.received_at > _GIVE_UP_AGE
    return row.unfinished_tries > MAX_UNFINISHED_TRIES or (is_old and row.failures > 0)


def release_bodies(
    uow: UnitOfWork,
    ids: Collection[int],
    *,
    pause: timedelta = timedelta(),
    has_opt_outs_applied: bool = False,
) -> None:
    """End the tries of bodies that weren't processed for a reason outside of the bodies."""
    changes = {"has_opt_outs_applied": True} if has_opt_outs_applied else {}
    BODIES.end_tries(uow, ids, pause, **changes)


def record_failures(uow: UnitOfWork, ids: Collection[int], *, is_batch: bool) -> None:
    """Record errors. If ``is_batch``, the bodies are retried immediately, one at a time."""
    failures = SenderBody.failures + 1
    pause = timedelta() if is_batch else build_pause(BODIES.pauses, failures)
    BODIES.end_tries(uow, ids, pause, failures=failures)
