"""What a person asks and agrees to, before the two records become one.

Who locks both people locks the account's person first: no account is merged away, so no two
transactions wait for each other. An import may hold many people, in the order of its file. So the
second lock is waited for so briefly that no such circle lasts.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Column, ColumnElement, delete, exists, func, or_, select, text
from sqlalchemy.dialects.postgresql import insert

from core.refusals import people as refusals
from models import AccountMerge, MergeStatus, Plan, User
from models.declarative import Model
from services.people import account_mails, accounts
from services.people.account_mails import MailKind
from services.people.account_merges import merge_jobs
from services.people.mailed_tokens import TOKEN_LIFETIMES, Purpose
from storage.unit_of_work import UnitOfWork

# What people have whom lists made, and what a merge deals with. A person of whom any other table
# knows has an account, or had one.
_OF_READERS = frozenset(
    {
        "account_mails",
        "account_merges",
        "former_addresses",
        "list_reports",
        "mailed_links",
        "opt_outs",
        "subscription_events",
        "subscriptions",
    }
)


_WAIT_BRIEFLY = text("SET LOCAL lock_timeout = '500ms'")


def find_other(uow: UnitOfWork, person: User, email: str) -> User | None:
    """The person whose record has the address, locked; raises ``address.has_account``."""
    other = lock_other(uow, User.email == email, User.id != person.id)
    if other is not None:
        _require_no_account(uow, other)
    return other


def lock_other(uow: UnitOfWork, *of: ColumnElement[bool]) -> User | None:
    """A person whose record is to be merged; the account's person is locked already."""
    uow.session.flush()
    uow.session.execute(_WAIT_BRIEFLY)
    query = select(User).where(*of).with_for_update()
    return uow.session.scalar(query.execution_options(populate_existing=True))


def ask(uow: UnitOfWork, person: User, email: str, *, request_id: str | None) -> None:
    """Mail the present address a link to agree by, now that the new one is proved."""
    expires_at = func.now() + TOKEN_LIFETIMES[Purpose.MERGE_RECORDS]
    values = {"email": email, "expires_at": expires_at}
    statement = insert(AccountMerge).values(user_id=person.id, status=MergeStatus.ASKED, **values)
    statement = statement.on_conflict_do_update(
        index_elements=["user_id"],
        index_where=text("status = 'asked'"),
        set_=values,
    )
    uow.session.execute(statement)
    account_mails.request_mail(
        uow, MailKind.MERGE_RECORDS, person.email, user_id=person.id, request_id=request_id
    )


def read(uow: UnitOfWork, user_id: int) -> AccountMerge:
    """What the person asked for and has not agreed to; raises ``account_link.invalid``."""
    found = uow.session.scalar(
        select(AccountMerge).where(
            AccountMerge.user_id == user_id,
            AccountMerge.status == MergeStatus.ASKED,
            AccountMerge.expires_at > func.now(),
        )
    )
    if found is None:
        raise refusals.ACCOUNT_LINK_INVALID()
    return found


def agree(uow: UnitOfWork, person: User, asked: AccountMerge) -> str:
    """Free the address, which the account then takes, and have the records merge later.

    Returns the address. Raises ``address.has_account``.
    """
    assert asked.email is not None
    email = asked.email
    other = find_other(uow, person, email)
    if other is None:
        # Its record was purged or erased meanwhile: nothing is left to merge.
        uow.session.delete(asked)
        uow.session.flush()
        return email
    accounts.take_address(uow, User.id == other.id)
    asked.status, asked.merged_id, asked.expires_at = MergeStatus.AGREED, other.id, None
    asked.agreed_at, asked.former_email = func.now(), person.email
    merge_jobs.enqueue(uow, asked, after=TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS])
    uow.session.flush()
    return email


def free_address(uow: UnitOfWork, person: User, email: str) -> User | None:
    """Take the address from the record that lists made of it since the account left it.

    Returns that record, locked, if it is to merge into the account's: the person has proved the
    address. An account that can log in keeps it.
    """
    other = lock_other(uow, User.email == email, User.id != person.id)
    if other is None:
        return None
    accounts.take_address(uow, User.id == other.id)
    return None if _has_account(uow, other) else other


def take_over(uow: UnitOfWork, person: User, other: User | None) -> None:
    """Have the other record, whose address the account took back, merge into the account's own.

    It waits until no change of address before it can be undone any more.
    """
    if other is None:
        return
    merge = AccountMerge(
        user_id=person.id,
        merged_id=other.id,
        email=person.email,
        status=MergeStatus.AGREED,
        agreed_at=func.now(),
    )
    uow.session.add(merge)
    uow.session.flush()
    merge_jobs.enqueue(uow, merge, after=timedelta())


def require_undoable(uow: UnitOfWork, person: User, *, since: datetime) -> None:
    """Raises ``account_link.invalid`` once records merge since a change from then on.

    The person is locked, as by the job that begins to merge.
    """
    begun = AccountMerge.status.in_((MergeStatus.MERGING, MergeStatus.MERGED))
    if uow.session.scalar(select(exists().where(*_of(person, since), begun))):
        raise refusals.ACCOUNT_LINK_INVALID()


def undo(uow: UnitOfWork, person: User, *, since: datetime) -> None:
    """Give each record its address back whose merge was agreed on since then.

    Call it once the account has its earlier address.
    """
    agreed = AccountMerge.status == MergeStatus.AGREED
    for each in uow.session.scalars(select(AccountMerge).where(*_of(person, since), agreed)).all():
        give_back(uow, each)
    asked = (AccountMerge.user_id == person.id, AccountMerge.status == MergeStatus.ASKED)
    uow.session.execute(delete(AccountMerge).where(*asked))


def give_back(uow: UnitOfWork, merge: AccountMerge) -> None:
    """Forget the merge; the other record gets its address back, unless somebody has it by now."""
    other = lock_other(uow, User.id == merge.merged_id)
    is_taken = select(exists().where(User.email == merge.email))
    if other is not None and other.erased_at is None and not uow.session.scalar(is_taken):
        assert merge.email is not None
        other.email = merge.email
    uow.session.delete(merge)
    accounts.flush_address(uow, refusals.USER_ADDRESS_TAKEN())


def open_merges(uow: UnitOfWork, user_id: int) -> Sequence[AccountMerge]:
    """The person's merges that have not come to their end."""
    of_person = (AccountMerge.user_id == user_id, AccountMerge.finished_at.is_(None))
    return uow.session.scalars(select(AccountMerge).where(*of_person)).all()


def _of(person: User, since: datetime) -> tuple[ColumnElement[bool], ...]:
    return (AccountMerge.user_id == person.id, AccountMerge.agreed_at >= since)


def _require_no_account(uow: UnitOfWork, other: User) -> None:
    if _has_account(uow, other):
        raise refusals.ADDRESS_HAS_ACCOUNT()


def _has_account(uow: UnitOfWork, other: User) -> bool:
    can_log_in = other.password_hash is not None or other.is_operator or other.plan != Plan.FREE
    others = or_(*(exists().where(each == other.id) for each in _references()))
    return can_log_in or bool(uow.session.scalar(select(others)))


def _references() -> list[Column[Any]]:
    key = User.__table__.c.id
    return [
        foreign.parent
        for table in Model.metadata.sorted_tables
        for foreign in table.foreign_keys
        if foreign.column is key and table.name not in _OF_READERS
    ]
