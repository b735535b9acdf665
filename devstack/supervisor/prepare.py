"""Creates the tables, demo data and sample photo of a stack before the first request.

The supervisor runs this module in a separate process, so that the module's memory is released when
the process ends. With ``--bucket``, the module also creates the stack's S3 bucket. With
``--login-link``, the module only prints another login link.
"""

import sys
from contextlib import suppress
from decimal import Decimal

from core.errors import DomainError
from core.log_output import configure_logging
from core.settings import SettingsError, load_settings
from devstack.supervisor import home_folder
from devstack.supervisor.home_folder import Home, read_json_object, write_private_json
from models import Plan, User
from services.access import api_keys
from services.accounts import accounts, registration
from services.credits import ledger, ledger_pages
from services.paging import PageRequest
from services.subscriptions import lists
from storage.migrations.run import migrate
from storage.resources import Resources, open_resources
from storage.unit_of_work import UnitOfWork

DEMO_EMAIL = "demo@pressroom.example"
DEMO_LIST_SLUG = "the-daily-demo"
DEMO_CREDITS = Decimal(100)
# A photo of 12 megapixels, which is a typical size for phones.
_SAMPLE_PHOTO_PIXELS = (4000, 3000)


def create_demo_data(home: Home, resources: Resources, password: str) -> None:
    with resources.unit_of_work() as uow:
        owner = accounts.find_user_by_email(uow, DEMO_EMAIL)
        if owner is None:
            owner = accounts.create_user(
                uow, email=DEMO_EMAIL, name="Demo Owner", password=password
            )
            accounts.set_plan(uow, email=DEMO_EMAIL, plan=Plan.PAID)
        demo_list = lists.find_by_slug(uow, DEMO_LIST_SLUG) or lists.create_list(
            uow, account_id=owner.account_id, title="The Daily Demo", slug=DEMO_LIST_SLUG
        )
        demo = {
            "email": DEMO_EMAIL,
            "password": password,
            "api_key": _get_api_key(home, resources, uow, owner),
            "user_id": owner.id,
            "list_id": demo_list.id,
            "list_slug": demo_list.slug,
            "login_link": registration.create_login_link(uow, owner),
        }
        account_id = owner.account_id
    # Grant the demo credits only to an account without ledger entries, so that they are granted
    # only once.
    if not ledger_pages.list_entries(resources.database, account_id, PageRequest(1)).rows:
        ledger.grant_credits(resources.database, account_id, DEMO_CREDITS, source_id="demo")
    # Store the demo login with its API key, because an API key can be read only when it is created.
    write_private_json(home.demo_file, demo)


def _get_api_key(home: Home, resources: Resources, uow: UnitOfWork, owner: User) -> str:
    stored_key = str((read_json_object(home.demo_file) or {}).get("api_key", ""))
    database = resources.database
    keyring = resources.keyring
    # The stored API key is invalid if it was revoked, or if the database or the signing key was
    # replaced.
    with suppress(DomainError):
        credential = api_keys.authenticate_key(database, api_keys.UsedKeys(), keyring, stored_key)
        if credential.account_id == owner.account_id:
            return stored_key
    return api_keys.create_key(uow, account_id=owner.account_id, name="Demo")[1]


def main() -> int:
    if "--login-link" in sys.argv:
        sys.stdout.write(f"{_create_login_link()}\n")
        return 0
    home = home_folder.find_home()
    if not home.sample_photo.exists():
        # Import the sandbox only to draw the photo, because the sandbox imports a web framework.
        from devstack.sandbox.stock_photos import draw_picture

        unfinished = home.sample_photo.with_suffix(".part")
        unfinished.write_bytes(draw_picture("sample", *_SAMPLE_PHOTO_PIXELS))
        unfinished.replace(home.sample_photo)
    settings = load_settings()
    configure_logging(settings)
    migrate(settings)
    resources = open_resources(settings, concurrency=2, name="prepare")
    try:
        create_demo_data(home, resources, home_folder.load_or_create_secrets(home).demo_password)
        if "--bucket" in sys.argv:
            resources.objects.create_bucket()
    finally:
        resources.close()
    return 0


def _create_login_link() -> str:
    """Create another login link for the demo account of the stack in the environment's settings."""
    resources = open_resources(load_settings(), concurrency=2, name="login")
    try:
        with resources.unit_of_work() as uow:
            return registration.create_login_link(uow, accounts.get_user_by_email(uow, DEMO_EMAIL))
    finally:
        resources.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SettingsError as error:
        sys.exit(f"Settings are missing or invalid:\n{error}")
    except DomainError as error:
        sys.exit(f"{error}\n`pressroom reset` makes the home anew, without what is in it.")
