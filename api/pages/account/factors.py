"""Pages on which people see, add and remove their second factors."""

from functools import partial

import segno
from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.auth.page_sessions import (
    FormFields,
    FormOf,
    PageSession,
    RecentFormStarter,
    RecentStarter,
    Starter,
    redirect_to_path,
    session_page,
)
from api.auth.requirements import LOGIN, PUBLIC
from api.browsers import FORM, KNOWN
from api.errors import STATUS_OF
from api.limits.bulkheads import RECORDS
from api.metrics import LOGINS
from api.parameters import StateOf
from api.request_ids import current_request_id
from api.state import State
from core import ids
from core.errors import DomainError, Kind
from core.errors.access import AUTH_SECOND_FACTOR, LOGIN_PAUSED
from core.errors.people import PASSKEY_INVALID, SECOND_FACTOR_NOT_FOUND, SECOND_FACTOR_WRONG
from services.accounts import accounts, logins
from services.accounts.factors import own_factors as service
from services.accounts.factors import passkeys, totp
from services.accounts.factors.second_steps import ShownFactor
from services.accounts.logins import Attempt
from services.accounts.mailed_tokens import (
    ADD_APP_PATH,
    ADD_PASSKEY_PATH,
    FACTORS_PATH,
    RECOVERY_CODES_PATH,
)

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
    """Add the app that was set up with the secret of the form, if its code is right."""
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
    """Show the recovery codes with the person's first factor; otherwise redirect to the factors."""
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
    """Return the status and the error of a form; raises an error that no form corrects."""
    if error is None:
        return 200, None
    if error.kind not in {Kind.INVALID, Kind.CONFLICT}:
        raise error
    return STATUS_OF[error.kind], error.message


_PROBLEMS = frozenset(
    each.code for each in (AUTH_SECOND_FACTOR, SECOND_FACTOR_WRONG, PASSKEY_INVALID, LOGIN_PAUSED)
)


def shown_factor(request: Request, state: State, form: dict[str, str]) -> ShownFactor:
    form_cookie = state.cookies.read(request, FORM) or ""
    return ShownFactor(form_cookie, form.get("code", ""), form.get("passkey", ""))


async def count_code(
    request: Request, state: State, email: str, shown: ShownFactor | None
) -> Attempt | None:
    """Count the attempt to show a code, before the code is looked at; raises ``login.paused``.

    A passkey can't be guessed, so showing one is not counted.
    """
    if shown is None or shown.passkey or not shown.code:
        return None
    known = state.cookies.read(request, KNOWN)
    keyring = state.resources.keyring
    count = partial(logins.begin_code, keyring=keyring, email=email, known=known)
    return await state.in_unit_of_work(count)


async def note_wrong_code(state: State, attempt: Attempt | None, error: DomainError) -> None:
    if attempt is not None and error.code == SECOND_FACTOR_WRONG.code:
        LOGINS.labels("failed").inc()
        await state.in_unit_of_work(partial(logins.fail, attempt=attempt))


def is_problem(error: DomainError) -> bool:
    """Return whether the form can be shown again with the error."""
    return error.code in _PROBLEMS


def problem_status(error: DomainError) -> int:
    """Return the status of the form: 403 if the factor is missing or wrong."""
    is_factor = is_problem(error) and error.kind is not Kind.RATE_LIMITED
    return STATUS_OF[AUTH_SECOND_FACTOR.kind if is_factor else error.kind]
