"""The teammates of accounts, and the accounts of people.

An account without teammates belongs to the person with the same id.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, func, or_, select
from sqlalchemy.orm import aliased

from core.errors.people import USER_NOT_FOUND_BY_EMAIL
from core.errors.teams import (
    TEAM_ALREADY,
    TEAM_NOT_FOUND,
    TEAM_OWNER_FIXED,
    TEAM_TOO_MANY,
    USER_OWNS_TEAM,
)
from core.ids import AccountId, PersonId
from core.permissions import Role
from models import Teammate, User
from services.access.caller import Caller
from services.access.sessions import lock_account, lock_person
from services.accounts import accounts
from storage.unit_of_work import UnitOfWork

MAX_TEAMS = 50


@dataclass(frozen=True)
class AccountSummary:
    """``role`` is ``None`` for API keys, which have only scopes."""

    id: AccountId
    name: str | None
    role: Role | None


@dataclass(frozen=True)
class TeamSummary:
    """An account with several people. ``owner`` is the owner's address."""

    id: AccountId
    owner: str
    people: int


@dataclass(frozen=True)
class TeammateSummary:
    user_id: PersonId
    name: str | None
    email: str
    role: Role
    joined_at: datetime


def describe_account(uow: UnitOfWork, caller: Caller) -> AccountSummary:
    """Return the caller's account, with the name of its owner."""
    owner = accounts.get_owner(uow, caller.account_id)
    return AccountSummary(caller.account_id, owner.name, caller.role)


def list_accounts(uow: UnitOfWork, caller: Caller) -> list[AccountSummary]:
    """Return the accounts in which the caller's credential can act, in the order of their ids.

    The caller acts in the account that is the default of its credential.
    """
    if caller.session_id is None:
        return [describe_account(uow, caller)]
    owner = aliased(Teammate)
    query = (
        select(Teammate.account_id, User.name, Teammate.role)
        .join(owner, and_(owner.account_id == Teammate.account_id, owner.role == Role.OWNER))
        .join(User, User.id == owner.person_id)
        .where(Teammate.person_id == caller.person_id)
    )
    rows = uow.session.execute(query).all()
    summaries = {row[0]: AccountSummary(row[0], row[1], Role(row[2])) for row in rows}
    # The account with the person's id may have no teammates.
    summaries.setdefault(caller.account_id, describe_account(uow, caller))
    return [summaries[account_id] for account_id in sorted(summaries)]


def list_teams(uow: UnitOfWork, *, limit: int = 1_000) -> list[TeamSummary]:
    """Return the accounts with the most people, except accounts with one person."""
    people = func.count()
    owner = func.min(User.email).filter(Teammate.role == Role.OWNER)
    query = (
        select(Teammate.account_id, owner, people)
        .join(User, User.id == Teammate.person_id)
        .group_by(Teammate.account_id)
        .having(people > 1)
        .order_by(people.desc(), Teammate.account_id)
        .limit(limit)
    )
    return [TeamSummary(*row) for row in uow.session.execute(query)]


def list_team(uow: UnitOfWork, account_id: AccountId) -> list[TeammateSummary]:
    """Return the people of an account, the owner first."""
    query = (
        select(User.id, User.name, User.email, Teammate.role, Teammate.joined_at)
        .join(User, User.id == Teammate.person_id)
        .where(Teammate.account_id == account_id)
        .order_by(Teammate.role != Role.OWNER, Teammate.joined_at, User.id)
    )
    team = [
        TeammateSummary(person_id, name, email, Role(role), joined_at)
        for person_id, name, email, role, joined_at in uow.session.execute(query)
    ]
    if team:
        return team
    owner = accounts.get_account(uow, account_id)
    return [TeammateSummary(owner.id, owner.name, owner.email, Role.OWNER, owner.created_at)]


def add_teammate(
    uow: UnitOfWork, account_id: AccountId, *, email: str, role: Role
) -> TeammateSummary:
    """Add a person with a login to an account. Only a transfer can make somebody the owner."""
    assert role is not Role.OWNER
    person = accounts.get_user_by_email(uow, email)
    if not accounts.has_account(uow, person):
        raise USER_NOT_FOUND_BY_EMAIL(email=email)
    # Lock both rows in the order of their ids, so that neither the account's nor the added person
    # can be erased at the same time, and simultaneous calls can't exceed the limit.
    for user_id in sorted({int(account_id), int(person.id)}):
        lock_person(uow, PersonId(user_id))
    if not _has_team(uow, account_id):
        owner = accounts.get_account(uow, account_id)
        row = Teammate(
            account_id=account_id, person_id=owner.id, role=Role.OWNER, joined_at=owner.created_at
        )
        uow.session.add(row)
        uow.session.flush()
    if uow.session.get(Teammate, (account_id, person.id)) is not None:
        raise TEAM_ALREADY(email=person.email)
    if _count_teams(uow, person.id) >= MAX_TEAMS:
        raise TEAM_TOO_MANY(most=MAX_TEAMS)
    row = Teammate(account_id=account_id, person_id=person.id, role=role)
    uow.session.add(row)
    uow.session.flush()
    return TeammateSummary(person.id, person.name, person.email, role, row.joined_at)


def remove_teammate(uow: UnitOfWork, account_id: AccountId, person_id: PersonId) -> None:
    """Remove a person from an account, which keeps everything that the person made."""
    lock_account(uow, account_id)
    teammate = uow.session.get(Teammate, (account_id, person_id))
    if teammate is None:
        raise TEAM_NOT_FOUND()
    if teammate.role == Role.OWNER:
        raise TEAM_OWNER_FIXED()
    uow.session.delete(teammate)
    uow.session.flush()


def require_no_team(uow: UnitOfWork, person_id: PersonId) -> None:
    """Raise ``user.owns_team`` if the person owns an account with other people."""
    owned = select(Teammate.account_id).where(_is_owner(person_id))
    if any(_count_people(uow, account_id) > 1 for account_id in uow.session.scalars(owned)):
        raise USER_OWNS_TEAM()


def end_teams(uow: UnitOfWork, person_id: PersonId) -> None:
    """Remove an erased person from all teams, and delete the team of the person's own account."""
    owned = select(Teammate.account_id).where(_is_owner(person_id))
    is_affected = or_(Teammate.person_id == person_id, Teammate.account_id.in_(owned))
    uow.session.execute(delete(Teammate).where(is_affected))


def _is_owner(person_id: PersonId) -> ColumnElement[bool]:
    return and_(Teammate.person_id == person_id, Teammate.role == Role.OWNER)


def _has_team(uow: UnitOfWork, account_id: AccountId) -> bool:
    return _count_people(uow, account_id) > 0


def _count_people(uow: UnitOfWork, account_id: AccountId) -> int:
    of_account = Teammate.account_id == account_id
    return uow.session.scalar(select(func.count()).where(of_account)) or 0


def _count_teams(uow: UnitOfWork, person_id: PersonId) -> int:
    of_person = Teammate.person_id == person_id
    return uow.session.scalar(select(func.count()).where(of_person)) or 0
