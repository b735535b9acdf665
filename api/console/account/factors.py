"""Pages on which people see, add and remove their second factors."""

import segno
from fastapi import APIRouter
from fastapi.responses import Response

from api.auth.redirects import redirect_to_path
from api.auth.requirements import LOGIN, PUBLIC
from api.console.requests import (
    ConsoleRequest,
    EmptyForm,
    RecentStarterConsole,
    RecentStarterConsoleForm,
    StarterConsole,
)
from api.console.typed_forms import TypedForm, build_error_form
from api.record_ids import parse_id
from api.route_classes import ThreadedRoute
from api.state import Transaction
from core.errors import DomainError, Kind
from services.accounts import accounts
from services.accounts.factors import own_factors as service
from services.accounts.factors import passkeys, totp
from services.accounts.page_paths import (
    ADD_APP_PATH,
    ADD_PASSKEY_PATH,
    FACTORS_PATH,
    RECOVERY_CODES_PATH,
)

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)

# The kinds of errors that a form can correct.
_SHOWN = (Kind.INVALID, Kind.CONFLICT)


@router.get(FACTORS_PATH, dependencies=[PUBLIC])
def show_factors(console: StarterConsole, uow: Transaction) -> Response:
    own, is_needed = service.list_factors(uow, console.user_id), console.member.lacks_factor
    return console.render_page("factors.html", own=own, is_needed=is_needed)


@router.post(FACTORS_PATH, dependencies=[PUBLIC])
def remove_factor(console: RecentStarterConsoleForm, uow: Transaction) -> Response:
    wanted = console.form.get("remove", "")
    if wanted == "app":
        service.remove_app(uow, console.caller)
    else:
        service.remove_passkey(uow, console.caller, parse_id(wanted) or 0)
    return redirect_to_path(console.state, FACTORS_PATH)


@router.get(ADD_APP_PATH, dependencies=[PUBLIC])
def show_new_app(console: RecentStarterConsole) -> Response:
    return _app_page(console, totp.create_secret(), TypedForm())


@router.post(ADD_APP_PATH, dependencies=[LOGIN])
def add_app(console: RecentStarterConsoleForm) -> Response:
    """Add the app that was set up with the secret of the form, if its code is right."""
    secret, offer = console.form.get("secret", ""), console.form.get("offer", "")
    if not totp.is_offered(console.state.resources.keyring, console.member.cookie, secret, offer):
        # The form of another session, such as one that was open before a login: a new secret.
        return redirect_to_path(console.state, ADD_APP_PATH)
    code = "".join(console.form.get("code", "").split())
    try:
        with console.unit_of_work() as uow:
            codes = service.add_app(uow, console.caller, secret=secret, code=code)
    except DomainError as error:
        return _app_page(console, secret, build_error_form(error, *_SHOWN))
    return _added(console, codes)


@router.get(ADD_PASSKEY_PATH, dependencies=[PUBLIC])
def show_new_passkey(console: RecentStarterConsole, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        person = accounts.get_user(uow, console.user_id)
        options = passkeys.build_creation_options(uow, person, session=console.member.cookie)
    return console.render_form(
        "add_passkey.html",
        form,
        passkey_options=options,
        name=console.form.get("name", ""),
    )


@router.post(ADD_PASSKEY_PATH, dependencies=[LOGIN])
def add_passkey(console: RecentStarterConsoleForm) -> Response:
    try:
        with console.unit_of_work() as uow:
            codes = service.add_passkey(
                uow,
                console.caller,
                session=console.member.cookie,
                name=console.form.get("name", ""),
                answer=console.form.get("passkey", ""),
            )
    except DomainError as error:
        return show_new_passkey(console, build_error_form(error, *_SHOWN))
    return _added(console, codes)


@router.post(RECOVERY_CODES_PATH, dependencies=[PUBLIC])
def make_codes(console: RecentStarterConsoleForm, uow: Transaction) -> Response:
    """Make new recovery codes and show them, once: no page that can be reloaded shows them."""
    codes = service.replace_recovery_codes(uow, console.caller)
    return console.render_page("recovery_codes.html", codes=codes)


def _added(console: ConsoleRequest, codes: list[str]) -> Response:
    """Show the recovery codes with the person's first factor; otherwise redirect to the factors."""
    if not codes:
        return redirect_to_path(console.state, FACTORS_PATH)
    return console.render_page("recovery_codes.html", codes=codes)


def _app_page(console: ConsoleRequest, secret: str, form: TypedForm) -> Response:
    with console.unit_of_work() as uow:
        email = accounts.get_user(uow, console.user_id).email
    code = segno.make_qr(totp.build_uri(secret, email), error="m")
    return console.render_form(
        "add_app.html",
        form,
        secret=secret,
        groups=[secret[at : at + 4] for at in range(0, len(secret), 4)],
        offer=totp.sign_offer(console.state.resources.keyring, console.member.cookie, secret),
        # On a light ground of its own: many cameras read no light code on a dark page.
        picture=code.svg_inline(scale=5, dark="#000", light="#fff"),
    )
