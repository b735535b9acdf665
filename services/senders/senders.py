"""Creates, changes and deletes senders.

Most senders report only about the lists of the sender's owner. ``any_list`` is meant for a central
program that sends the mail of all lists.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, delete, func, select, text

from core.errors import senders as errors
from core.errors.mailing import LIST_NOT_FOUND
from core.ids import AccountId
from core.scopes import Scope
from integrations.senders.port import SenderProvider
from models import ApiKey, MailingList, Sender, SenderBody, SenderSecret, SenderState
from services.access import api_keys, sessions
from services.access.caller import Caller
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.security_events import EventType, record_event
from services.senders import provider_keys, sender_secrets
from storage.unit_of_work import UnitOfWork

MAX_SENDERS = 20
MAX_NAME_CHARACTERS = 200
MAX_LISTS_PER_SENDER = 1_000
REFUSED = "refused"
_COUNT_OUTCOMES = text("""
SELECT sender_id, outcome, CAST(sum(count) AS bigint) FROM sender_counts
WHERE sender_id = ANY (CAST(:ids AS bigint[])) AND hour > now() - interval '24 hours'
GROUP BY sender_id, outcome
""")


@dataclass(frozen=True)
class NewSender:
    """``list_ids`` is ``None`` if the sender covers all lists of its owner."""

    name: str
    provider: SenderProvider
    list_ids: Sequence[int] | None = None
    any_list: bool = False
    topic_arn: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SenderChange:
    """A setting whose attribute is ``None`` isn't changed."""

    name: str | None = None
    list_ids: Sequence[int] | None = None
    covers_all_lists: bool = False
    any_list: bool | None = None
    topic_arn: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    state: SenderState | None = None


@dataclass(frozen=True)
class SenderFigures:
    """The numbers of a sender's reports and rejected requests in the last 24 hours."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0


def create_sender(uow: UnitOfWork, caller: Caller, new: NewSender) -> tuple[Sender, str | None]:
    sessions.lock_caller(uow, caller)
    if new.any_list:
        _require_delivery(caller)
    detail = "in a browser where you are logged in"
    if caller.key_id is not None:
        key = uow.session.get_one(ApiKey, caller.key_id)
        detail = f"with your API key that ends in {key.last_four}"
    return add_sender(uow, caller.account_id, new, key_id=caller.key_id, detail=detail)


def add_sender(
    uow: UnitOfWork, account_id: AccountId, new: NewSender, *, key_id: int | None, detail: str
) -> tuple[Sender, str | None]:
    """Create a sender, and notify the person by mail. Scopes aren't checked.

    The returned secret is ``None`` if the provider creates its own secret. ``detail`` is a part of
    a sentence in the mail.
    """
    key = provider_keys.choose_key(new.provider, new.keys)
    key_name = provider_keys.KEY_NAMES.get(new.provider)
    if key_name is not None and key is None:
        raise errors.SENDER_KEY_INVALID(name=key_name, rule="is required for this provider")
    provider_keys.require_topic(new.provider, new.topic_arn)
    _require_own_lists(uow, account_id, new.list_ids or ())
    query = select(func.count()).where(Sender.user_id == account_id, is_not_deleted())
    if (uow.session.scalar(query) or 0) >= MAX_SENDERS:
        raise errors.SENDER_TOO_MANY(most=MAX_SENDERS)
    sender = Sender(
        user_id=account_id,
        key_id=key_id,
        name=new.name,
        provider=new.provider,
        list_ids=None if new.list_ids is None else sorted(set(new.list_ids)),
        any_list=new.any_list,
        topic_arn=new.topic_arn,
    )
    uow.session.add(sender)
    uow.session.flush()
    secret = None
    if new.provider in provider_keys.CREATED_SECRETS:
        secret = sender_secrets.generate_secret(new.provider)
    if (value := secret or key) is not None:
        sender_secrets.store_secret(uow, sender.id, value)
    record_event(uow, account_id, EventType.SENDER_CREATED, sender_id=sender.id)
    owner = accounts.get_owner(uow, account_id)
    limit = account_mails.HOURLY_LIMIT_PER_DETAIL
    account_mails.enqueue_mail(uow, MailKind.NEW_SENDER, owner, detail, limit=limit)
    return sender, secret


def list_senders(uow: UnitOfWork, account_id: AccountId) -> list[Sender]:
    return find_senders(uow, Sender.user_id == account_id)


def find_senders(uow: UnitOfWork, condition: ColumnElement[bool]) -> list[Sender]:
    query = select(Sender).where(condition, is_not_deleted())
    return list(uow.session.scalars(query.order_by(Sender.created_at.desc(), Sender.id.desc())))


def get_sender(uow: UnitOfWork, caller: Caller, sender_id: int, *, lock: bool = False) -> Sender:
    query = select(Sender).where(
        Sender.id == sender_id, Sender.user_id == caller.account_id, is_not_deleted()
    )
    sender = uow.session.scalar(query.with_for_update() if lock else query)
    if sender is None:
        raise errors.SENDER_NOT_FOUND()
    return sender


def count_outcomes(uow: UnitOfWork, sender_ids: Collection[int]) -> dict[int, SenderFigures]:
    counts: dict[int, dict[str, int]] = {sender_id: {} for sender_id in sender_ids}
    for sender_id, outcome, count in uow.session.execute(_COUNT_OUTCOMES, {"ids": [*counts]}):
        counts[sender_id][outcome] = count
    return {
        sender_id: SenderFigures(refused=outcomes.pop(REFUSED, 0), outcomes=outcomes)
        for sender_id, outcomes in counts.items()
    }


def change_sender(uow: UnitOfWork, caller: Caller, sender_id: int, to: SenderChange) -> Sender:
    changes_proof = bool(to.keys) or to.topic_arn is not None
    if changes_proof:
        sessions.lock_caller(uow, caller)
    sender = get_sender(uow, caller, sender_id, lock=True)
    provider = SenderProvider(sender.provider)
    if changes_proof:
        _change_proof(uow, caller, sender, provider, to)
    if to.any_list and not sender.any_list:
        _require_delivery(caller)
    if to.any_list is not None:
        sender.any_list = to.any_list
    if to.covers_all_lists:
        sender.list_ids = None
    elif to.list_ids is not None:
        _require_own_lists(uow, caller.account_id, to.list_ids)
        sender.list_ids = sorted(set(to.list_ids))
    if to.name is not None:
        sender.name = to.name
    if to.state is not None:
        _set_state(uow, caller, sender, to.state)
    if changes_proof or uow.session.is_modified(sender):
        record_event(uow, caller.account_id, EventType.SENDER_CHANGED, sender_id=sender.id)
    uow.session.flush()
    return sender


def _change_proof(
    uow: UnitOfWork, caller: Caller, sender: Sender, provider: SenderProvider, to: SenderChange
) -> None:
    if sender.any_list:
        _require_delivery(caller)
    key = provider_keys.choose_key(provider, to.keys)
    if key is not None:
        sender_secrets.store_secret(uow, sender.id, key)
    if to.topic_arn is not None:
        provider_keys.require_topic(provider, to.topic_arn)
        sender.topic_arn = to.topic_arn
    sender.key_id = caller.key_id


def _set_state(uow: UnitOfWork, caller: Caller, sender: Sender, state: SenderState) -> None:
    if state is SenderState.PAUSED:
        sender.state = state
    elif sender.state == SenderState.PAUSED:
        has_reports = sender.last_report_at is not None
        sender.state = SenderState.WORKING if has_reports else SenderState.WAITING
        sender.warnings = []
        if sender.key_id is not None and not api_keys.is_active_key(uow, sender.key_id):
            # Replace an expired or revoked API key with the caller's key, because the sender would
            # otherwise be paused again.
            if sender.any_list:
                _require_delivery(caller)
            sender.key_id = caller.key_id


def rotate_secret(uow: UnitOfWork, caller: Caller, sender_id: int) -> str:
    sessions.lock_caller(uow, caller)
    sender = get_sender(uow, caller, sender_id, lock=True)
    if sender.any_list:
        _require_delivery(caller)
    provider = SenderProvider(sender.provider)
    if provider not in provider_keys.CREATED_SECRETS:
        name = provider_keys.KEY_NAMES.get(provider, "topic_arn")
        raise errors.SENDER_KEY_INVALID(name=name, rule="change this value with PATCH instead")
    secret = sender_secrets.generate_secret(provider)
    sender_secrets.store_secret(uow, sender.id, secret)
    sender.key_id = caller.key_id
    record_event(uow, caller.account_id, EventType.SENDER_CHANGED, sender_id=sender.id)
    return secret


def delete_sender(uow: UnitOfWork, caller: Caller, sender_id: int) -> int:
    sender = get_sender(uow, caller, sender_id, lock=True)
    end_senders(uow, caller.account_id, [sender.id])
    return 1


def end_all_senders(uow: UnitOfWork, account_id: AccountId, *, but: Collection[int] = ()) -> None:
    """Delete a person's senders except ``but``, because an intruder may have created them."""
    end_senders(uow, account_id, {row.id for row in list_senders(uow, account_id)} - set(but))


def end_senders(uow: UnitOfWork, account_id: AccountId, sender_ids: Collection[int]) -> None:
    """Delete senders, their secrets, and the bodies that wait for a worker.

    Bodies that a worker is processing at this moment stay. If the worker fails, the next worker
    deletes them.

    The senders' rows are only marked as deleted, because deleting a row would also delete all
    reports of the sender. A maintenance task later deletes the rows.
    """
    conditions = (Sender.user_id == account_id, Sender.id.in_(sorted(sender_ids)), is_not_deleted())
    deleted = uow.session.scalars(select(Sender).where(*conditions).with_for_update()).all()
    for sender in deleted:
        sender.deleted_at = func.now()
        uow.session.execute(delete(SenderSecret).where(SenderSecret.sender_id == sender.id))
        # Skip request bodies that a worker has locked. Waiting for the worker could cause a
        # deadlock, because the worker also locks the sender.
        waiting = select(SenderBody.id).where(SenderBody.sender_id == sender.id)
        waiting_ids = uow.session.scalars(waiting.with_for_update(skip_locked=True)).all()
        uow.session.execute(delete(SenderBody).where(SenderBody.id.in_(waiting_ids)))
    if deleted:
        record_event(uow, account_id, EventType.SENDER_ENDED, senders=len(deleted))


def build_events_url(public_base: str, sender_id: int) -> str:
    return f"{public_base}/senders/{sender_id}/events"


def is_not_deleted() -> ColumnElement[bool]:
    return Sender.deleted_at.is_(None)


def _require_delivery(caller: Caller) -> None:
    if Scope.DELIVERY not in caller.scopes:
        raise errors.SENDER_NEEDS_DELIVERY()


def _require_own_lists(uow: UnitOfWork, account_id: AccountId, list_ids: Collection[int]) -> None:
    query = select(func.count()).where(
        MailingList.id.in_(sorted(set(list_ids))), MailingList.user_id == account_id
    )
    if list_ids and uow.session.scalar(query) != len(set(list_ids)):
        raise LIST_NOT_FOUND()
