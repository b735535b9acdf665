from sqlalchemy import ColumnElement, String, cast, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from core import ids
from core.errors import DomainError
from core.refusals.people import USER_EXISTS, USER_NOT_FOUND, USER_NOT_FOUND_BY_EMAIL
from models import FormerAddress, MailingList, MovedAccount, Plan, User
from services import paging
from services.events.catalogue import EventType
from services.events.recording import record_by_operator
from services.paging import PageOfRows, PageRequest
from services.people import email_addresses, passwords
from storage.unit_of_work import UnitOfWork

# No mail server has this domain (RFC 2606).
_WITHOUT_ADDRESS = "@moved.invalid"


def create_user(
    uow: UnitOfWork, *, email: str, name: str | None = None, password: str | None = None
) -> User:
    """A new person; without a password they can't log in.

    Raises ``user.exists`` and what ``passwords.require_allowed`` raises.
    """
    user = User(
        email=email_addresses.normalise(email),
        name=name,
        password_hash=None if password is None else passwords.make(password, email, name),
    )
    uow.session.add(user)
    flush_address(uow, USER_EXISTS(email=user.email))
    return user


def flush_address(uow: UnitOfWork, taken: DomainError) -> None:
    """Write a person's new address; raises ``taken`` when another person has it."""
    try:
        uow.session.flush()
    except IntegrityError as error:
        if "uq_users_email" not in str(error.orig):
            raise
        raise taken from None


def find_or_create_person(uow: UnitOfWork, email: str) -> User:
    """The person with a normalised address; a new one has no password."""
    while True:
        # The constraint lets one of several transactions make the person.
        statement = insert(User).values(id=ids.random_id(), email=email)
        uow.session.execute(statement.on_conflict_do_nothing(index_elements=["email"]))
        found = uow.session.scalar(select(User).where(User.email == email))
        # None when the person was erased between the two statements.
        if found is not None:
            return found


def take_address(uow: UnitOfWork, *of: ColumnElement[bool]) -> None:
    """Take the address from people without an account.

    Lists go on knowing them by it.
    """
    placeholder = func.concat("moved-", cast(User.id, String), _WITHOUT_ADDRESS)
    without_account = (*of, User.password_hash.is_(None))
    left = select(User.email, User.id).where(*without_account)
    statement = insert(FormerAddress).from_select(["email", "user_id"], left)
    uow.session.execute(statement.on_conflict_do_nothing())
    uow.session.execute(update(User).where(*without_account).values(email=placeholder))


def has_address(person: User) -> bool:
    """False for a person whose address an account took (``take_address``)."""
    return not person.email.endswith(_WITHOUT_ADDRESS)


def note_move(uow: UnitOfWork, person: User, *, left: str) -> None:
    """From now on rosters use the address that the person has given their account.

    Args:
        left: the one that it had, by which lists may know the person.
    """
    for row in (
        insert(MovedAccount).values(user_id=person.id),
        insert(FormerAddress).values(user_id=person.id, email=left),
    ):
        uow.session.execute(row.on_conflict_do_nothing())


def find_by_email(uow: UnitOfWork, email: str) -> User | None:
    return uow.session.scalar(select(User).where(User.email == email_addresses.normalise(email)))


def get_by_email(uow: UnitOfWork, email: str) -> User:
    """Raises ``user.not_found``."""
    user = find_by_email(uow, email)
    if user is None:
        raise USER_NOT_FOUND_BY_EMAIL(email=email)
    return user


def find(uow: UnitOfWork, user_id: int) -> User | None:
    """The person with this id; for a record that was merged, the person whose it is now."""
    person = uow.session.get(User, user_id)
    if person is not None and person.merged_into is not None:
        return uow.session.get(User, person.merged_into)
    return person


def whose(uow: UnitOfWork, user_id: int) -> User | None:
    """The person whose a record became, as it is at this moment; ``None`` if it was not merged."""
    merged_into = uow.session.scalar(select(User.merged_into).where(User.id == user_id))
    return None if merged_into is None else uow.session.get(User, merged_into)


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
    """Whether the plan was another one before."""
    before = user.plan
    if before == plan:
        return False
    user.plan = plan
    record_by_operator(uow, user.id, EventType.PLAN_CHANGED, plan=plan, before=before)
    return True


def set_operator(uow: UnitOfWork, *, email: str, is_operator: bool) -> User:
    """Whether the person runs this deployment; an operator needs a second factor at each login."""
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
    found = uow.session.execute(
        paging.by_moment(select(owned), owned.c.newest, owned.c.user_id, wanted)
    ).all()
    page = paging.cut(
        found, wanted.limit, lambda row: paging.moment_cursor(row.newest, row.user_id)
    )
    shown = select(User).where(User.id.in_([row.user_id for row in page.rows]))
    people = {person.id: person for person in uow.session.scalars(shown)}
    rows = [(people[row.user_id], row.lists) for row in page.rows if row.user_id in people]
    return PageOfRows(rows, page.next_cursor)
