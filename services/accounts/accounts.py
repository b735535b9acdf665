"""Creates, finds and changes users."""

from collections.abc import Iterable

from sqlalchemy import Column, and_, exists, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from core import ids
from core.errors import DomainError
from core.errors.people import USER_EXISTS, USER_NOT_FOUND, USER_NOT_FOUND_BY_EMAIL
from core.ids import AccountId, PersonId
from core.permissions import Role
from models import FormerAddress, MailingList, Plan, Teammate, User
from models.declarative import Model
from services import paging
from services.accounts import email_addresses, passwords
from services.paging import PageOfRows, PageRequest
from services.security_events import EventType, record_operator_event
from storage.expected_errors import raise_if_taken
from storage.unit_of_work import UnitOfWork

# Tables that may contain rows about readers without an account. A person with a row in any table
# outside ``_READER_TABLES`` has or had an account.
_READER_TABLES = frozenset(
    {
        "account_mails",
        "engagement_answers",
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
    user = User(
        email=email_addresses.normalise_address(email),
        name=name,
        password_hash=None if password is None else passwords.hash_password(password, email, name),
    )
    uow.session.add(user)
    flush_address(uow, USER_EXISTS(email=user.email))
    return user


def flush_address(uow: UnitOfWork, taken: DomainError) -> None:
    with raise_if_taken("uq_users_email", taken):
        uow.session.flush()


def find_or_create_person(uow: UnitOfWork, email: str) -> User:
    while True:
        # If several transactions insert the same address at the same time, only one of them creates
        # the row.
        statement = insert(User).values(id=ids.random_id(), email=email)
        uow.session.execute(statement.on_conflict_do_nothing(index_elements=["email"]))
        person = uow.session.scalar(select(User).where(User.email == email))
        # ``person`` is ``None`` if the person was erased between the INSERT and the SELECT.
        if person is not None:
            return person


def has_account(uow: UnitOfWork, person: User) -> bool:
    """Return whether a person has a password, or data that only account owners can have."""
    can_log_in = person.password_hash is not None or person.is_operator or person.plan != Plan.FREE
    row_exists = [
        exists().where(column == person.id)
        for column in user_id_columns()
        if column.table.name not in _READER_TABLES
    ]
    return can_log_in or bool(uow.session.scalar(select(or_(*row_exists))))


def user_id_columns() -> list[Column[int]]:
    keys = (key for table in Model.metadata.sorted_tables for key in table.foreign_keys)
    return [key.parent for key in keys if key.column is User.__table__.c.id]


def record_address_change(
    uow: UnitOfWork, person: User, *, old_address: str, is_visible: bool = False
) -> None:
    """Store a person's former address. If ``is_visible``, list owners can see the new address."""
    values = {"shown": person.email if is_visible else None, "left_at": func.now()}
    row = insert(FormerAddress).values(user_id=person.id, email=old_address, **values)
    uow.session.execute(row.on_conflict_do_update(index_elements=["email", "user_id"], set_=values))


def find_user_by_email(uow: UnitOfWork, email: str) -> User | None:
    return uow.session.scalar(
        select(User).where(User.email == email_addresses.normalise_address(email))
    )


def get_user_by_email(uow: UnitOfWork, email: str) -> User:
    user = find_user_by_email(uow, email)
    if user is None:
        raise USER_NOT_FOUND_BY_EMAIL(email=email)
    return user


def find_user(uow: UnitOfWork, person_id: PersonId) -> User | None:
    return uow.session.get(User, person_id)


def get_user(uow: UnitOfWork, person_id: PersonId) -> User:
    user = find_user(uow, person_id)
    if user is None:
        raise USER_NOT_FOUND()
    return user


def get_owner(uow: UnitOfWork, account_id: AccountId) -> User:
    """Return the person who owns an account. Without teammates, it has the person's id."""
    is_owner = and_(Teammate.account_id == account_id, Teammate.role == Role.OWNER)
    owner_id = select(Teammate.person_id).where(is_owner).scalar_subquery()
    owner = uow.session.scalar(select(User).where(User.id == func.coalesce(owner_id, account_id)))
    if owner is None:
        raise USER_NOT_FOUND()
    return owner


def get_account(uow: UnitOfWork, account_id: AccountId) -> User:
    """Return the row that contains an account's plan."""
    return get_user(uow, PersonId(account_id))


def get_account_by_email(uow: UnitOfWork, email: str) -> AccountId:
    """Return the account of the owner with an address."""
    return get_user_by_email(uow, email).account_id


def find_addresses(uow: UnitOfWork, user_ids: Iterable[int | None]) -> dict[int, str]:
    ids = {user_id for user_id in user_ids if user_id is not None}
    rows = uow.session.execute(select(User.id, User.email).where(User.id.in_(ids)))
    return dict(rows.tuples().all())


def set_plan(uow: UnitOfWork, *, email: str, plan: Plan) -> User:
    user = get_user_by_email(uow, email)
    change_plan(uow, user, plan)
    return user


def change_plan(uow: UnitOfWork, user: User, plan: Plan) -> bool:
    before = user.plan
    if before == plan:
        return False
    user.plan = plan
    record_operator_event(uow, user.account_id, EventType.PLAN_CHANGED, plan=plan, before=before)
    return True


def set_operator(uow: UnitOfWork, *, email: str, is_operator: bool) -> User:
    user = get_user_by_email(uow, email)
    user.is_operator = is_operator
    return user


def list_owners(uow: UnitOfWork, page_request: PageRequest) -> PageOfRows[tuple[User, int]]:
    """Return a page of list owners with their number of lists, including archived lists.

    The owner of the newest list comes first. The query starts from the table of lists, because few
    users own a list.
    """
    newest = func.max(MailingList.created_at).label("newest")
    count = func.count(MailingList.id).label("lists")
    owned = select(MailingList.user_id, newest, count).group_by(MailingList.user_id).subquery()
    # For speed, the first query reads only an index on the table of mailing lists. A second query
    # loads the owners of the lists.
    query = paging.select_page_by_moment(
        select(owned), owned.c.newest, owned.c.user_id, page_request
    )
    owner_rows = uow.session.execute(query).all()
    page = paging.cut_page(
        owner_rows,
        page_request.limit,
        lambda row: paging.build_moment_cursor(row.newest, row.user_id),
    )
    users_of_page = select(User).where(User.id.in_([row.user_id for row in page.rows]))
    users = {user.id: user for user in uow.session.scalars(users_of_page)}
    rows = [(users[row.user_id], row.lists) for row in page.rows if row.user_id in users]
    return PageOfRows(rows, page.next_cursor)
