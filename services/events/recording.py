"""Events are rows that are written in the transaction of the change that they tell of."""

from collections.abc import Mapping
from functools import partial

from prometheus_client import Counter
from sqlalchemy import func, select

from core.logging import get_logger
from models import RecordedEvent
from services.events import event_origins
from services.events.catalogue import EventType
from services.events.event_origins import (
    MAX_USER_AGENT_CHARACTERS,
    Credential,
    CredentialKind,
)
from services.feed.announcing import announce
from services.feed.catalogue import FeedEventType
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

_EVENTS = Counter("pressroom_security_events", "Events of accounts", ["type"])

Detail = int | str | list[int] | list[str] | None

# Those that the feed has too: the detail that names the subject, and the one that counts.
_ANNOUNCED = {
    EventType.KEY_CREATED: (FeedEventType.KEY_CREATED, "key_id", "keys"),
    EventType.KEY_ENDED: (FeedEventType.KEY_ENDED, "key_id", "keys"),
    EventType.GRANT_CREATED: (FeedEventType.GRANT_CREATED, "grant_id", "grants"),
    EventType.GRANT_ENDED: (FeedEventType.GRANT_ENDED, "grant_id", "grants"),
}


def record(
    uow: UnitOfWork,
    user_id: int,
    kind: EventType,
    /,
    *,
    credential: Credential | None = None,
    **detail: Detail,
) -> None:
    """Record a fact about this user, from where the act under way came.

    Args:
        credential: by which it happened, instead of the one that the request carries.
        detail: ids and numbers, at most 2,000 bytes; no names, addresses or other people's words.
    """
    origin = event_origins.current()
    credential = credential or origin.credential
    # A browser may still be in as another person.
    if credential is not None and credential.user_id not in (None, user_id):
        credential = None
    uow.session.add(
        RecordedEvent(
            user_id=user_id,
            type=kind,
            ip=origin.ip,
            user_agent=_storable(origin.user_agent),
            credential_kind=None if credential is None else credential.kind,
            credential_id=None if credential is None else credential.id,
            detail=detail,
        )
    )
    if kind in _ANNOUNCED:
        _announce(uow, user_id, kind, detail)
    uow.after_commit(partial(_tell, kind, user_id, credential))


def record_by_operator(uow: UnitOfWork, user_id: int, kind: EventType, /, **detail: Detail) -> None:
    """Record what an operator did to this user's account, and not from where they did it."""
    command = Credential(CredentialKind.COMMAND)
    uow.session.add(
        RecordedEvent(user_id=user_id, type=kind, credential_kind=command.kind, detail=detail)
    )
    uow.after_commit(partial(_tell, kind, user_id, command))


def _announce(uow: UnitOfWork, user_id: int, kind: EventType, detail: Mapping[str, Detail]) -> None:
    announced, subject, number = _ANNOUNCED[kind]
    subject_id, count = detail.get(subject), detail.get(number, 1)
    assert subject_id is None or isinstance(subject_id, int)
    assert isinstance(count, int)
    announce(uow, user_id, announced, subject_id, count=count)


def record_hourly(uow: UnitOfWork, user_id: int, kind: EventType, /, **detail: Detail) -> None:
    """Record a fact of a kind that a program may cause in a loop: once an hour for each user."""
    uow.session.execute(select(func.pg_advisory_xact_lock(func.hashtext(kind), user_id % 2**31)))
    lately = select(RecordedEvent.id).where(
        RecordedEvent.user_id == user_id,
        RecordedEvent.type == kind,
        RecordedEvent.occurred_at > func.now() - func.make_interval(0, 0, 0, 0, 1),
    )
    if uow.session.scalar(lately.limit(1)) is None:
        record(uow, user_id, kind, credential=None, **detail)


def _storable(user_agent: str | None) -> str | None:
    return user_agent and user_agent.replace("\0", "")[:MAX_USER_AGENT_CHARACTERS]


def _tell(kind: EventType, user_id: int, credential: Credential | None) -> None:
    """Count and log the event once it is committed. The log has no IP address and no name."""
    _EVENTS.labels(kind).inc()
    by = None if credential is None else credential.kind
    log.info("account.event", type=kind, user_id=user_id, credential=by)
