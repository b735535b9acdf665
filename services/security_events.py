"""Events are rows that are written in the transaction of the change that they tell of."""

from enum import StrEnum
from functools import partial

from prometheus_client import Counter
from sqlalchemy import func, select

from core.errors.access import QUOTA_EXCEEDED
from core.errors.mailing import PLAN_REQUIRED
from core.logging import get_logger
from models import RecordedEvent
from services import event_origins, paging
from services.event_origins import MAX_USER_AGENT_CHARACTERS, Credential, CredentialKind
from services.feed.catalogue import FeedEventType, announce_event
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)


def page(uow: UnitOfWork, user_id: int, wanted: PageRequest) -> PageOfRows[RecordedEvent]:
    """The user's events as they were written, newest first; raises ``cursor.invalid``."""
    query = paging.of_owner(select(RecordedEvent), RecordedEvent.user_id, user_id, wanted)
    return paging.read(uow, query, wanted)


class EventType(StrEnum):
    LOGIN_SUCCEEDED = "login.succeeded"
    # For an address that has an account. `attempts`: how many in a row.
    LOGIN_FAILED = "login.failed"
    SESSION_ENDED = "session.ended"
    PASSWORD_CHANGED = "password.changed"  # noqa: S105 - a name
    # By a mailed link.
    PASSWORD_RESET = "password.reset"  # noqa: S105 - a name
    ADDRESS_CHANGED = "address.changed"
    # A change taken back by the link that the earlier address was mailed.
    ADDRESS_UNDONE = "address.undone"
    KEY_CREATED = "key.created"
    KEY_ENDED = "key.ended"
    GRANT_CREATED = "grant.created"
    GRANT_ENDED = "grant.ended"
    FACTOR_ADDED = "factor.added"
    FACTOR_REMOVED = "factor.removed"
    EXPORT_CREATED = "export.created"
    # More pages of members in an hour than a person looks at. `pages`: how many those were.
    MEMBERS_READ = "members.read"
    WEBHOOK_CREATED = "webhook.created"
    # It got another URL.
    WEBHOOK_CHANGED = "webhook.changed"
    WEBHOOK_ENDED = "webhook.ended"
    # The quota that the plan lacks, and what would be more than it has.
    PLAN_REFUSED = "plan.refused"
    QUOTA_REFUSED = "quota.refused"
    # By an operator.
    PLAN_CHANGED = "plan.changed"
    # Events of the operator's own account: what they did to another's, or to the deployment.
    OPERATOR_ACTED = "operator.acted"


_EVENTS = Counter("pressroom_security_events", "Events of accounts", ["type"])

Detail = int | str | list[int] | list[str] | None

# Events that the feed has too: the detail that names the subject, and the one that counts.
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
    agent = origin.user_agent and origin.user_agent.replace("\0", "")[:MAX_USER_AGENT_CHARACTERS]
    event = RecordedEvent(user_id=user_id, type=kind, ip=origin.ip, user_agent=agent, detail=detail)
    _add(uow, event, credential)
    if kind in _ANNOUNCED:
        announced, subject, number = _ANNOUNCED[kind]
        subject_id, count = detail.get(subject), detail.get(number, 1)
        assert subject_id is None or isinstance(subject_id, int)
        assert isinstance(count, int)
        announce_event(uow, user_id, announced, subject_id, count=count)


def record_by_operator(uow: UnitOfWork, user_id: int, kind: EventType, /, **detail: Detail) -> None:
    """Record what an operator did to this user's account, and not from where they did it."""
    event = RecordedEvent(user_id=user_id, type=kind, detail=detail)
    _add(uow, event, Credential(CredentialKind.COMMAND))


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


def _add(uow: UnitOfWork, event: RecordedEvent, credential: Credential | None) -> None:
    """Add the event; count and log it once it is committed, without an IP address and a name."""
    if credential is not None:
        event.credential_kind, event.credential_id = credential.kind, credential.id
    uow.session.add(event)
    told = {"type": event.type, "user_id": event.user_id, "credential": event.credential_kind}
    uow.after_commit(_EVENTS.labels(event.type).inc)
    uow.after_commit(partial(log.info, "account.event", **told))


_ERROR_EVENTS = {
    PLAN_REQUIRED.code: EventType.PLAN_REFUSED,
    QUOTA_EXCEEDED.code: EventType.QUOTA_REFUSED,
}


def is_plan_error(code: str) -> bool:
    return code in _ERROR_EVENTS


def record_error(uow: UnitOfWork, user_id: int, code: str) -> None:
    """Record an error with this code, unless an equal one was recorded within the hour."""
    record_hourly(uow, user_id, _ERROR_EVENTS[code])
