"""Pages on which people see, add and remove their second factors."""

from functools import partial

import segno
from fastapi import APIRouter
from fastapi.responses import Response

from api.access.page_sessions import (
    FormFields,
    FormOf,
    PageSession,
    RecentFormStarter,
    RecentStarter,
    Starter,
    redirect_to_path,
    session_page,
)
from api.access.requirements import LOGIN, PUBLIC
from api.errors import STATUS_OF
from api.limits.bulkheads import RECORDS
from api.parameters import StateOf
from api.request_ids import current_request_id
from api.state import State
from core import ids
from core.errors import DomainError, Kind
from core.refusals.people import SECOND_FACTOR_NOT_FOUND
from services.people import accounts
from services.people.factors import own_factors as service
from services.people.factors import passkeys, totp
from services.people.page_urls import (
    ADD_APP_PATH,
    ADD_PASSKEY_PATH,
    FACTORS_PATH,
    RECOVERY_CODES_PATH,
)

# No operations of the API, so not in its document.
router = APIRouter(include_in_schema=False)

_APP = "app"


@router.get(FACTORS_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_factors(state: StateOf, member: Starter) -> Response:
    with state.resources.unit_of_work() as uow:
        own, is_needed = service.of(uow, member.user_id), member.lacks_factor
        return session_page(member, state, "factors.html", own=own, is_needed=is_needed)


@router.post(FACTORS_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def remove_factor(state: StateOf, member: RecentFormStarter, form: FormOf) -> Response:
    """Remove the authenticator app or one passkey."""
    wanted, request_id = form.get("remove", ""), current_request_id()
    with state.resources.unit_of_work() as uow:
        if wanted == _APP:
            service.remove_app(uow, member.caller, request_id=request_id)
        elif wanted.isascii() and wanted.isdigit() and len(wanted) <= len(str(ids.MAX_ID)):
            passkey_id = min(int(wanted), ids.MAX_ID)
            service.remove_passkey(uow, member.caller, passkey_id, request_id=request_id)
        else:
            raise SECOND_FACTOR_NOT_FOUND()
    return redirect_to_path(state, FACTORS_PATH)


@router.get(ADD_APP_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_new_app(state: StateOf, member: RecentStarter) -> Response:
    return _app_page(state, member, totp.new_secret())


@router.post(ADD_APP_PATH, dependencies=[LOGIN])
@RECORDS.threaded
def add_app(state: StateOf, member: RecentFormStarter, form: FormOf) -> Response:
    """Add the app that was set up with the secret of the form, once a code of it is right."""
    secret, keyring = form.get("secret", ""), state.resources.keyring
    if not totp.is_offered(keyring, member.cookie, secret, form.get("offer", "")):
        # The form of another session, such as one that was open before a login: a new secret.
        return redirect_to_path(state, ADD_APP_PATH)
    add = partial(
        service.add_app,
        resources=state.resources,
        caller=member.caller,
        secret=secret,
        code="".join(form.get("code", "").split()),
        request_id=current_request_id(),
    )
    try:
        codes = state.transact(add)
    except DomainError as error:
        return _app_page(state, member, secret, error)
    return _added(state, member, codes)


@router.get(ADD_PASSKEY_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_new_passkey(state: StateOf, member: RecentStarter) -> Response:
    return _passkey_page(state, member, {})


@router.post(ADD_PASSKEY_PATH, dependencies=[LOGIN])
@RECORDS.threaded
def add_passkey(state: StateOf, member: RecentFormStarter, form: FormOf) -> Response:
    add = partial(
        service.add_passkey,
        resources=state.resources,
        caller=member.caller,
        session=member.cookie,
        name=form.get("name", ""),
        answer=form.get("passkey", ""),
        request_id=current_request_id(),
    )
    try:
        codes = state.transact(add)
    except DomainError as error:
        return _passkey_page(state, member, form, error)
    return _added(state, member, codes)


@router.post(RECOVERY_CODES_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def make_codes(state: StateOf, member: RecentFormStarter) -> Response:
    """Make new recovery codes and show them, once: no page that can be reloaded shows them."""
    request_id = current_request_id()
    with state.resources.unit_of_work() as uow:
        codes = service.make_codes(uow, state.resources, member.caller, request_id=request_id)
    return session_page(member, state, "recovery_codes.html", codes=codes)


def _added(state: State, member: PageSession, codes: list[str]) -> Response:
    """The recovery codes, if the factor is the person's first one; otherwise their factors."""
    if not codes:
        return redirect_to_path(state, FACTORS_PATH)
    return session_page(member, state, "recovery_codes.html", codes=codes)


def _app_page(
    state: State, member: PageSession, secret: str, error: DomainError | None = None
) -> Response:
    with state.resources.unit_of_work() as uow:
        email = accounts.get(uow, member.user_id).email
    code = segno.make_qr(totp.uri(secret, email), error="m")
    status, problem = _problem(error)
    return session_page(
        member,
        state,
        "add_app.html",
        status=status,
        problem=problem,
        secret=secret,
        groups=[secret[at : at + 4] for at in range(0, len(secret), 4)],
        offer=totp.sign_offer(state.resources.keyring, member.cookie, secret),
        # On a light ground of its own: many cameras read no light code on a dark page.
        picture=code.svg_inline(scale=5, dark="#000", light="#fff"),
    )


def _passkey_page(
    state: State, member: PageSession, form: FormFields, error: DomainError | None = None
) -> Response:
    settings = state.resources.settings
    with state.resources.unit_of_work() as uow:
        person = accounts.get(uow, member.user_id)
        options = passkeys.creation_options(uow, settings, person, session=member.cookie)
    status, problem = _problem(error)
    return session_page(
        member,
        state,
        "add_passkey.html",
        status=status,
        scripted=True,
        passkey_options=options,
        name=form.get("name", ""),
        problem=problem,
    )


def _problem(error: DomainError | None) -> tuple[int, str | None]:
    """The status of a page, and what was wrong in its form; raises an error of anything else."""
    if error is None:
        return 200, None
    if error.kind not in {Kind.INVALID, Kind.CONFLICT}:
        raise error
    return STATUS_OF[error.kind], error.message
