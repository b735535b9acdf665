"""Records and lists the security events of accounts.

A security event is written in the same transaction as the change that it describes.
"""

from enum import StrEnum
from functools import partial

from prometheus_client import Counter
from sqlalchemy import func, select

from core.errors.access import QUOTA_EXCEEDED
from core.errors.mailing import PLAN_REQUIRED
from core.ids import AccountId, PersonId
from core.logging import get_logger
from models import RecordedEvent
from services import event_origins, paging
from services.event_origins import MAX_USER_AGENT_CHARACTERS, Credential, CredentialKind
from services.feed.catalogue import FeedEventType, announce_event
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

Detail = int | str | list[int] | list[str] | None

_EVENTS = Counter("pressroom_security_events", "Account events", ["type"])


class EventType(StrEnum):
    LOGIN_SUCCEEDED = "login.succeeded"
    # A failed login to an existing account. The event's detail ``attempts`` is the number of
    # consecutive failed logins.
    LOGIN_FAILED = "login.failed"
    SESSION_ENDED = "session.ended"
    PASSWORD_CHANGED = "password.changed"  # noqa: S105 - a name
    # A person has set a new password with a mailed link.
    PASSWORD_RESET = "password.reset"  # noqa: S105 - a name
    ADDRESS_CHANGED = "address.changed"
    # A person has undone a change of address with a link that was mailed to the former address.
    ADDRESS_UNDONE = "address.undone"
    KEY_CREATED = "key.created"
    KEY_ENDED = "key.ended"
    GRANT_CREATED = "grant.created"
    GRANT_ENDED = "grant.ended"
    FACTOR_ADDED = "factor.added"
    FACTOR_REMOVED = "factor.removed"
    EXPORT_CREATED = "export.created"
    # A client has read more pages of members within an hour than a person would. The event's detail
    # ``pages`` is the number of pages that the client has read.
    MEMBERS_READ = "members.read"
    WEBHOOK_CREATED = "webhook.created"
    # The URL of a webhook endpoint was changed.
    WEBHOOK_CHANGED = "webhook.changed"
    WEBHOOK_ENDED = "webhook.ended"
    SENDER_CREATED = "sender.created"
    # The settings or the secret of a sender were changed.
    SENDER_CHANGED = "sender.changed"
    SENDER_ENDED = "sender.ended"
    # A request was rejected because the user's plan doesn't include the requested feature.
    PLAN_REFUSED = "plan.refused"
    # A request was rejected because it would exceed a quota of the user's plan.
    QUOTA_REFUSED = "quota.refused"
    # An operator has changed the user's plan.
    PLAN_CHANGED = "plan.changed"
    # An operator has changed a user's account or the deployment. The security event about an
    # operator's action is recorded in the operator's account.
    OPERATOR_ACTED = "operator.acted"


# Maps security events to the types of the feed events that they also create. The second text in
# each value names the event detail that contains the id of the key or grant. The third text in each
# value names the event detail that contains the number of keys or grants.
_FEED_EVENTS = {
    EventType.KEY_CREATED: (FeedEventType.KEY_CREATED, "key_id", "keys"),
    EventType.KEY_ENDED: (FeedEventType.KEY_ENDED, "key_id", "keys"),
    EventType.GRANT_CREATED: (FeedEventType.GRANT_CREATED, "grant_id", "grants"),
    EventType.GRANT_ENDED: (FeedEventType.GRANT_ENDED, "grant_id", "grants"),
}


# Maps the code of an error to the type of the security event that records the error.
_ERROR_EVENTS = {
    PLAN_REQUIRED.code: EventType.PLAN_REFUSED,
    QUOTA_EXCEEDED.code: EventType.QUOTA_REFUSED,
}


def list_events(
    uow: UnitOfWork, person_id: PersonId, page_request: PageRequest, *, known_only: bool = False
) -> PageOfRows[RecordedEvent]:
    """Return events of a person and of the person's own account, newest first.

    ``known_only`` omits types that only a newer release knows.
    """
    events = select(RecordedEvent)
    if known_only:
        events = events.where(RecordedEvent.type.in_(EventType))
    query = paging.select_owner_page(events, RecordedEvent.user_id, person_id, page_request)
    return paging.read_page(uow, query, page_request)


def record_event(
    uow: UnitOfWork,
    account_id: AccountId,
    kind: EventType,
    /,
    *,
    credential: Credential | None = None,
    **detail: Detail,
) -> None:
    """Record a security event of an account, with the IP address of the current request.

    The default ``credential`` authenticated the request. ``detail`` contains ids and numbers, at
    most 2,000 bytes, but no names, e-mail addresses or text that people wrote.
    """
    credential = credential or event_origins.current_origin().credential
    if credential is not None and credential.account_id not in (None, account_id):
        credential = None
    _add_with_origin(uow, account_id, kind, credential, detail)
    if kind in _FEED_EVENTS:
        feed_type, id_detail, count_detail = _FEED_EVENTS[kind]
        subject_id = detail.get(id_detail)
        count = detail.get(count_detail, 1)
        assert subject_id is None or isinstance(subject_id, int)
        assert isinstance(count, int)
        announce_event(uow, account_id, feed_type, subject_id, count=count)


def record_person_event(
    uow: UnitOfWork,
    person_id: PersonId,
    kind: EventType,
    /,
    *,
    credential: Credential | None = None,
    **detail: Detail,
) -> None:
    """Record a security event of a person, such as a login. See ``record_event``."""
    credential = credential or event_origins.current_origin().credential
    # Omit another person's credential. A browser may be logged in as one person, while a mailed
    # link changes another person's password.
    if credential is not None and credential.person_id not in (None, person_id):
        credential = None
    _add_with_origin(uow, person_id, kind, credential, detail)


def record_operator_event(
    uow: UnitOfWork, account_id: AccountId, kind: EventType, /, **detail: Detail
) -> None:
    """Record an operator's change to an account, without the operator's IP address."""
    event = RecordedEvent(user_id=account_id, type=kind, detail=detail)
    _add(uow, event, Credential(CredentialKind.COMMAND))


def record_hourly_event(
    uow: UnitOfWork, account_id: AccountId, kind: EventType, /, **detail: Detail
) -> None:
    """Record a security event, at most once per account, type and hour.

    The limit prevents a program from filling the table by repeating a request.
    """
    uow.session.execute(select(func.pg_advisory_xact_lock(func.hashtext(kind), account_id % 2**31)))
    recent_events = select(RecordedEvent.id).where(
        RecordedEvent.user_id == account_id,
        RecordedEvent.type == kind,
        RecordedEvent.occurred_at > func.now() - func.make_interval(0, 0, 0, 0, 1),
    )
    if uow.session.scalar(recent_events.limit(1)) is None:
        record_event(uow, account_id, kind, credential=None, **detail)


def _add_with_origin(
    uow: UnitOfWork,
    user_id: AccountId | PersonId,
    kind: EventType,
    credential: Credential | None,
    detail: dict[str, Detail],
) -> None:
    origin = event_origins.current_origin()
    agent = origin.user_agent and origin.user_agent.replace("\0", "")[:MAX_USER_AGENT_CHARACTERS]
    event = RecordedEvent(user_id=user_id, type=kind, ip=origin.ip, user_agent=agent, detail=detail)
    _add(uow, event, credential)


def _add(uow: UnitOfWork, event: RecordedEvent, credential: Credential | None) -> None:
    """Store a security event, and after the commit log it without an IP address or a name."""
    if credential is not None:
        event.credential_kind = credential.kind
        event.credential_id = credential.id
    uow.session.add(event)
    fields = {"type": event.type, "user_id": event.user_id, "credential": event.credential_kind}
    uow.after_commit(_EVENTS.labels(event.type).inc)
    uow.after_commit(partial(log.info, "account.event", **fields))


def is_plan_error(code: str) -> bool:
    return code in _ERROR_EVENTS


def record_plan_error(uow: UnitOfWork, account_id: AccountId, code: str) -> None:
    record_hourly_event(uow, account_id, _ERROR_EVENTS[code])
