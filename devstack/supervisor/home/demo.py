"""Demo data: an owner on the paid plan with some credits, their API key and a list."""

from contextlib import suppress
from decimal import Decimal

from core.errors import DomainError
from devstack.supervisor.home.home_folder import Home
from devstack.supervisor.home.private_files import read_json_object, write_private_json
from models import Plan, User
from services.access import api_keys
from services.mailing import lists
from services.money.credits import ledger
from services.paging import PageRequest
from services.people import accounts
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

EMAIL = "demo@pressroom.example"
LIST_SLUG = "the-daily-demo"
CREDITS = Decimal(100)


def ensure(home: Home, resources: Resources, password: str) -> None:
    """Make what is missing and keep what is there; safe to call at every start."""
    with resources.unit_of_work() as uow:
        owner = accounts.find_by_email(uow, EMAIL)
        if owner is None:
            owner = accounts.create_user(uow, email=EMAIL, name="Demo Owner", password=password)
            accounts.set_plan(uow, email=EMAIL, plan=Plan.PAID)
        own_list = lists.find_by_slug(uow, LIST_SLUG) or lists.create(
            uow, owner_id=owner.id, title="The Daily Demo", slug=LIST_SLUG
        )
        demo = {
            "email": EMAIL,
            "password": password,
            "api_key": _key(home, resources, uow, owner),
            "user_id": owner.id,
            "list_id": own_list.id,
            "list_slug": own_list.slug,
        }
        owner_id = owner.id
    # Once: an account that was ever used has entries.
    if not ledger.page(resources.database, owner_id, PageRequest(1)).rows:
        ledger.grant(resources.database, owner_id, CREDITS, source_id="demo")
    # Kept in the home, since a key is shown only once.
    write_private_json(home.demo_file, demo)


def _key(home: Home, resources: Resources, uow: UnitOfWork, owner: User) -> str:
    """The kept key while it opens the owner's account, else a new one."""
    kept = str((read_json_object(home.demo_file) or {}).get("api_key", ""))
    database, keyring = resources.database, resources.keyring
    # The kept one may be revoked, or its database or signing key gone.
    with suppress(DomainError):
        opened = api_keys.authenticate(database, api_keys.LastUseBuffer(), keyring, kept)
        if opened.user_id == owner.id:
            return kept
    return api_keys.create(uow, keyring, user_id=owner.id, name="Demo")[1]
