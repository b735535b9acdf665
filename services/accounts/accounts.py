"""Functions that create, find and change users."""

from sqlalchemy import Column, exists, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from core import ids
from core.errors import DomainError
from core.errors.people import USER_EXISTS, USER_NOT_FOUND, USER_NOT_FOUND_BY_EMAIL
from models import FormerAddress, MailingList, Plan, User
from models.declarative import Model
from services import paging
from services.accounts import email_addresses, passwords
from services.paging import PageOfRows, PageRequest
from services.security_events import EventType, record_by_operator
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

# Tables with rows of people whom lists made. A person of whom any other table knows has an account,
# or had one.
_OF_READERS = frozenset(
    {
        "account_mails",
        "former_addresses",
        "list_reports",
        "mailed_links",
        "opt_outs",
        "subscription_events",
        "subscriptions",
    }
)


def create_user(
    uow: UnitOfWork, *, email: str, name: str | None = None, password: str | None = None
) -> User:
    """A new person; raises ``user.exists`` and what ``passwords.require_allowed`` raises."""
    user = User(
        email=email_addresses.normalise_address(email),
        name=name,
        password_hash=None if password is None else passwords.make(password, email, name),
    )
    uow.session.add(user)
    flush_address(uow, USER_EXISTS(email=user.email))
    return user


def flush_address(uow: UnitOfWork, taken: DomainError) -> None:
    """Write a person's new address; raises ``taken`` when another person has it."""
    with raise_if_taken("uq_users_email", taken):
        uow.session.flush()


def find_or_create_person(uow: UnitOfWork, email: str) -> User:
    """The person with a normalised address; a new one has no password."""
    while True:
        # The constraint lets one of several transactions make the person.
        statement = insert(User).values(id=ids.random_id(), email=email)
        uow.session.execute(statement.on_conflict_do_nothing(index_elements=["email"]))
        person = uow.session.scalar(select(User).where(User.email == email))
        # There is none when the person was erased between the two statements.
        if person is not None:
            return person


def has_account(uow: UnitOfWork, person: User) -> bool:
    """Return whether the person can log in, or has what a mere reader has not, such as credits."""
    can_log_in = person.password_hash is not None or person.is_operator or person.plan != Plan.FREE
    # A table that is new counts as something of an account until somebody thinks about it.
    others = [
        exists().where(column == person.id)
        for column in columns_of_people()
        if column.table.name not in _OF_READERS
    ]
    return can_log_in or bool(uow.session.scalar(select(or_(*others))))


def columns_of_people() -> list[Column[int]]:
    """The columns of all tables that refer to a person."""
    keys = (key for table in Model.metadata.sorted_tables for key in table.foreign_keys)
    return [key.parent for key in keys if key.column is User.__table__.c.id]


def note_move(uow: UnitOfWork, person: User, *, left: str, shown: bool = False) -> None:
    """Keep the address that the account had; ``shown``: owners of lists are to see the new one."""
    values = {"shown": person.email if shown else None, "left_at": func.now()}
    row = insert(FormerAddress).values(user_id=person.id, email=left, **values)
    uow.session.execute(row.on_conflict_do_update(index_elements=["email", "user_id"], set_=values))


def find_by_email(uow: UnitOfWork, email: str) -> User | None:
    return uow.session.scalar(
        select(User).where(User.email == email_addresses.normalise_address(email))
    )


def get_by_email(uow: UnitOfWork, email: str) -> User:
    """Raises ``user.not_found``."""
    user = find_by_email(uow, email)
    if user is None:
        raise USER_NOT_FOUND_BY_EMAIL(email=email)
    return user


def find(uow: UnitOfWork, user_id: int) -> User | None:
    return uow.session.get(User, user_id)


def get(uow: UnitOfWork, user_id: int) -> User:
    """Raises ``user.not_found``."""
    user = find(uow, user_id)
    if user is None:
        raise USER_NOT_FOUND()
    return user


def set_plan(uow: UnitOfWork, *, email: str, plan: Plan) -> User:
    """Put a user on a plan, as the operator; raises ``user.not_found``."""
    user = get_by_email(uow, email)
    change_plan(uow, user, plan)
    return user


def change_plan(uow: UnitOfWork, user: User, plan: Plan) -> bool:
    """Return whether the plan was another one before."""
    before = user.plan
    if before == plan:
        return False
    user.plan = plan
    record_by_operator(uow, user.id, EventType.PLAN_CHANGED, plan=plan, before=before)
    return True


def set_operator(uow: UnitOfWork, *, email: str, is_operator: bool) -> User:
    """Let the person run this deployment or not; an operator needs a second factor."""
    user = get_by_email(uow, email)
    user.is_operator = is_operator
    return user


def owners_of_lists(uow: UnitOfWork, wanted: PageRequest) -> PageOfRows[tuple[User, int]]:
    """People with the number of their lists, archived ones too; the newest list's owner first.

    Found by the lists, which are few: most of all people are members of one. Raises
    ``cursor.invalid``.
    """
    newest = func.max(MailingList.created_at).label("newest")
    count = func.count(MailingList.id).label("lists")
    owned = select(MailingList.user_id, newest, count).group_by(MailingList.user_id).subquery()
    # An index answers it alone. People are looked up for those of the page only.
    query = paging.by_moment(select(owned), owned.c.newest, owned.c.user_id, wanted)
    found = uow.session.execute(query).all()
    page = paging.cut(
        found, wanted.limit, lambda row: paging.moment_cursor(row.newest, row.user_id)
    )
    owners = select(User).where(User.id.in_([row.user_id for row in page.rows]))
    people = {person.id: person for person in uow.session.scalars(owners)}
    rows = [(people[row.user_id], row.lists) for row in page.rows if row.user_id in people]
    return PageOfRows(rows, page.next_cursor)
