"""Demo data: an owner on the paid plan, an API key of theirs and a list."""

from dataclasses import asdict, dataclass

from core.errors import DomainError
from devstack.supervisor.home.home import Home
from devstack.supervisor.home.private_files import read_json_object, write_private_json
from models import MailingList, Plan, User
from services.access import api_keys
from services.mailing import lists
from services.people import accounts
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

EMAIL = "demo@pressroom.example"
LIST_SLUG = "the-daily-demo"


@dataclass(frozen=True)
class Demo:
    """What a visitor needs to try things; kept in the home, since a key is shown only once."""

    email: str
    password: str
    api_key: str
    user_id: int
    list_id: int
    list_slug: str


def ensure(home: Home, resources: Resources, password: str) -> Demo:
    """Make what is missing and keep what is there; safe to call at every start."""
    with resources.unit_of_work() as uow:
        owner = _owner(uow, password)
        own_list = _list(uow, owner)
        demo = Demo(
            email=EMAIL,
            password=password,
            api_key=_key(home, resources, uow, owner),
            user_id=owner.id,
            list_id=own_list.id,
            list_slug=own_list.slug,
        )
    write_private_json(home.demo_file, asdict(demo))
    return demo


def _owner(uow: UnitOfWork, password: str) -> User:
    owner = accounts.find_by_email(uow, EMAIL)
    if owner is None:
        owner = accounts.create_user(uow, email=EMAIL, name="Demo Owner", password=password)
        accounts.set_plan(uow, email=EMAIL, plan=Plan.PAID)
    return owner


def _list(uow: UnitOfWork, owner: User) -> MailingList:
    found = lists.find_by_slug(uow, LIST_SLUG)
    return found or lists.create(uow, owner_id=owner.id, title="The Daily Demo", slug=LIST_SLUG)


def _key(home: Home, resources: Resources, uow: UnitOfWork, owner: User) -> str:
    """The kept key while it opens the owner's account; a new one after that."""
    keyring = resources.keyring
    kept = str((read_json_object(home.demo_file) or {}).get("api_key", ""))
    try:
        database = resources.database
        if (
            api_keys.authenticate(database, api_keys.LastUseBuffer(), keyring, kept).user_id
            == owner.id
        ):
            return kept
    except DomainError:
        # Revoked, or of a database or signing key that is no more.
        pass
    return api_keys.create(uow, keyring, user_id=owner.id, name="Demo")[1]
