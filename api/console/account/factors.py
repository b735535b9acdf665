"""Pages on which people see, add and remove their second factors."""

import segno
from fastapi import APIRouter
from fastapi.responses import Response

from api.auth.redirects import redirect_to_path
from api.auth.requirements import LOGIN, PUBLIC
from api.console.typed_forms import TypedForm, problem_form
from api.console.visits import (
    ConsoleVisit,
    EmptyForm,
    RecentFormStarterVisit,
    RecentStarterVisit,
    StarterVisit,
)
from api.record_ids import parse_id
from api.route_classes import ThreadedRoute
from api.state import Transaction
from core.errors import DomainError, Kind
from services.accounts import accounts
from services.accounts.factors import own_factors as service
from services.accounts.factors import passkeys, totp
from services.accounts.mailed_tokens import (
    ADD_APP_PATH,
    ADD_PASSKEY_PATH,
    FACTORS_PATH,
    RECOVERY_CODES_PATH,
)

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)

# The kinds of errors that a form can correct.
_SHOWN = (Kind.INVALID, Kind.CONFLICT)


@router.get(FACTORS_PATH, dependencies=[PUBLIC])
def show_factors(visit: StarterVisit, uow: Transaction) -> Response:
    own, is_needed = service.of(uow, visit.user_id), visit.member.lacks_factor
    return visit.page("factors.html", own=own, is_needed=is_needed)


@router.post(FACTORS_PATH, dependencies=[PUBLIC])
def remove_factor(visit: RecentFormStarterVisit, uow: Transaction) -> Response:
    wanted = visit.form.get("remove", "")
    if wanted == "app":
        service.remove_app(uow, visit.caller)
    else:
        service.remove_passkey(uow, visit.caller, parse_id(wanted) or 0)
    return redirect_to_path(visit.state, FACTORS_PATH)


@router.get(ADD_APP_PATH, dependencies=[PUBLIC])
def show_new_app(visit: RecentStarterVisit) -> Response:
    return _app_page(visit, totp.new_secret(), TypedForm())


@router.post(ADD_APP_PATH, dependencies=[LOGIN])
def add_app(visit: RecentFormStarterVisit) -> Response:
    """Add the app that was set up with the secret of the form, if its code is right."""
    secret, offer = visit.form.get("secret", ""), visit.form.get("offer", "")
    if not totp.is_offered(visit.state.resources.keyring, visit.member.cookie, secret, offer):
        # The form of another session, such as one that was open before a login: a new secret.
        return redirect_to_path(visit.state, ADD_APP_PATH)
    code = "".join(visit.form.get("code", "").split())
    try:
        with visit.unit_of_work() as uow:
            codes = service.add_app(uow, visit.caller, secret=secret, code=code)
    except DomainError as error:
        return _app_page(visit, secret, problem_form(error, *_SHOWN))
    return _added(visit, codes)


@router.get(ADD_PASSKEY_PATH, dependencies=[PUBLIC])
def show_new_passkey(visit: RecentStarterVisit, form: EmptyForm) -> Response:
    with visit.unit_of_work() as uow:
        person = accounts.get(uow, visit.user_id)
        options = passkeys.creation_options(uow, person, session=visit.member.cookie)
    return visit.form_page(
        "add_passkey.html",
        form,
        passkey_options=options,
        name=visit.form.get("name", ""),
    )


@router.post(ADD_PASSKEY_PATH, dependencies=[LOGIN])
def add_passkey(visit: RecentFormStarterVisit) -> Response:
    try:
        with visit.unit_of_work() as uow:
            codes = service.add_passkey(
                uow,
                visit.caller,
                session=visit.member.cookie,
                name=visit.form.get("name", ""),
                answer=visit.form.get("passkey", ""),
            )
    except DomainError as error:
        return show_new_passkey(visit, problem_form(error, *_SHOWN))
    return _added(visit, codes)


@router.post(RECOVERY_CODES_PATH, dependencies=[PUBLIC])
def make_codes(visit: RecentFormStarterVisit, uow: Transaction) -> Response:
    """Make new recovery codes and show them, once: no page that can be reloaded shows them."""
    codes = service.make_codes(uow, visit.caller)
    return visit.page("recovery_codes.html", codes=codes)


def _added(visit: ConsoleVisit, codes: list[str]) -> Response:
    """Show the recovery codes with the person's first factor; otherwise redirect to the factors."""
    if not codes:
        return redirect_to_path(visit.state, FACTORS_PATH)
    return visit.page("recovery_codes.html", codes=codes)


def _app_page(visit: ConsoleVisit, secret: str, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        email = accounts.get(uow, visit.user_id).email
    code = segno.make_qr(totp.uri(secret, email), error="m")
    return visit.form_page(
        "add_app.html",
        form,
        secret=secret,
        groups=[secret[at : at + 4] for at in range(0, len(secret), 4)],
        offer=totp.sign_offer(visit.state.resources.keyring, visit.member.cookie, secret),
        # On a light ground of its own: many cameras read no light code on a dark page.
        picture=code.svg_inline(scale=5, dark="#000", light="#fff"),
    )
