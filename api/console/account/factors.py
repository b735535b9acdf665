"""Pages on which a user adds and removes second factors, such as an authenticator app."""

import segno
from fastapi.responses import Response

from api.console.requests import (
    ConsoleRequest,
    EmptyForm,
    LoginLimitedStarterForm,
    RecentStarterForm,
    RecentStarterPage,
    StarterPage,
    build_router,
    shows_errors_on,
)
from api.record_ids import parse_id
from api.state import Transaction
from core.errors import Kind
from services.accounts import accounts
from services.accounts.factors import own_factors as service
from services.accounts.factors import passkeys, totp
from services.accounts.page_paths import (
    ADD_APP_PATH,
    ADD_PASSKEY_PATH,
    FACTORS_PATH,
    RECOVERY_CODES_PATH,
)

router = build_router("")

# The kinds of errors that the user can fix by correcting the form.
_CORRECTABLE_KINDS = (Kind.INVALID, Kind.CONFLICT)


@router.get(FACTORS_PATH)
def show_factors(console: StarterPage, uow: Transaction) -> Response:
    own_factors = service.list_factors(uow, console.person_id)
    is_needed = console.member.lacks_factor
    return console.render_page("factors.html", factors=own_factors, is_needed=is_needed)


@router.post(FACTORS_PATH)
def remove_factor(console: RecentStarterForm, uow: Transaction) -> Response:
    selection = console.form.get("remove", "")
    if selection == "app":
        service.remove_app(uow, console.caller)
    else:
        service.remove_passkey(uow, console.caller, parse_id(selection) or 0)
    return console.redirect(FACTORS_PATH)


@router.get(ADD_APP_PATH)
def show_new_app(console: RecentStarterPage, uow: Transaction, form: EmptyForm) -> Response:
    secret = console.form.get("secret") or totp.create_secret()
    email = accounts.get_user(uow, console.person_id).email
    code = segno.make_qr(totp.build_uri(secret, email), error="m")
    return console.render_page(
        "add_app.html",
        form,
        secret=secret,
        groups=[secret[at : at + 4] for at in range(0, len(secret), 4)],
        offer=totp.sign_offer(console.state.resources.keyring, console.member.cookie, secret),
        # Draw the QR code on a light background, because many cameras can't read light codes on a
        # dark background.
        picture=code.svg_inline(scale=5, dark="#000", light="#fff"),
    )


@router.post(ADD_APP_PATH)
@shows_errors_on(show_new_app, kinds=_CORRECTABLE_KINDS)
def add_app(console: LoginLimitedStarterForm, uow: Transaction) -> Response:
    secret = console.form.get("secret", "")
    offer = console.form.get("offer", "")
    if not totp.is_offered(console.state.resources.keyring, console.member.cookie, secret, offer):
        # The form belongs to a session that has ended, for example because the user logged in
        # again. Redirect to a new form, which contains a new secret for the authenticator app.
        return console.redirect(ADD_APP_PATH)
    code = "".join(console.form.get("code", "").split())
    codes = service.add_app(uow, console.caller, secret=secret, code=code)
    return _show_recovery_codes(console, codes)


@router.get(ADD_PASSKEY_PATH)
def show_new_passkey(console: RecentStarterPage, uow: Transaction, form: EmptyForm) -> Response:
    person = accounts.get_user(uow, console.person_id)
    options = passkeys.build_creation_options(uow, person, session=console.member.cookie)
    return console.render_page(
        "add_passkey.html",
        form,
        passkey_options=options,
        name=console.form.get("name", ""),
    )


@router.post(ADD_PASSKEY_PATH)
@shows_errors_on(show_new_passkey, kinds=_CORRECTABLE_KINDS)
def add_passkey(console: LoginLimitedStarterForm, uow: Transaction) -> Response:
    codes = service.add_passkey(
        uow,
        console.caller,
        session=console.member.cookie,
        name=console.form.get("name", ""),
        answer=console.form.get("passkey", ""),
    )
    return _show_recovery_codes(console, codes)


@router.get(RECOVERY_CODES_PATH)
def show_factors_again(console: StarterPage) -> Response:
    """Redirect to the list of second factors.

    The browser sends this request after the login that new recovery codes may require.
    """
    return console.redirect(FACTORS_PATH)


@router.post(RECOVERY_CODES_PATH)
def create_recovery_codes(console: RecentStarterForm, uow: Transaction) -> Response:
    """Replace the user's recovery codes, and show the new codes.

    Recovery codes are shown only in the response to a POST, so that a GET can't reveal them later.
    """
    codes = service.replace_recovery_codes(uow, console.caller)
    return console.render_page("recovery_codes.html", codes=codes)


def _show_recovery_codes(console: ConsoleRequest, codes: list[str]) -> Response:
    """Show new recovery codes, or redirect to the list of second factors if ``codes`` is empty."""
    if not codes:
        return console.redirect(FACTORS_PATH)
    return console.render_page("recovery_codes.html", codes=codes)
