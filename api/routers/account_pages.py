"""A person's pages about their own account."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.access.answer_timing import padded_duration
from api.access.identity import client_address
from api.access.page_sessions import (
    FormFields,
    FormOf,
    PageSession,
    page_session,
    page_session_of_form,
    redirect_to_login,
    redirect_to_path,
    session_page,
)
from api.access.requirements import LOGIN, PUBLIC
from api.pages.frame import page
from api.parameters import StateOf
from api.request_ids import current_request_id
from api.state import State
from core import ids
from core.errors import DomainError, Kind
from core.refusals.access import SESSION_NOT_FOUND
from core.refusals.people import PASSWORD_WRONG
from models import User
from services.access import sessions
from services.people import account_mails, accounts, logins, page_urls, passwords, registration
from services.people.account_mails import MailKind
from services.people.logins import Attempt

# No operations of the API, so not in its document. Each page checks the session itself.
router = APIRouter(include_in_schema=False)

Note = Annotated[str | None, Query()]
Token = Annotated[str, Query()]

_NOTES = {
    "password": "Your password is changed, and you are logged out everywhere else.",
    "address": "Your account has its new address.",
    "sessions": "That is done.",
}
_WRONG_PASSWORD = "That isn’t your present password."  # noqa: S105 - a sentence


@router.get(page_urls.ACCOUNT_PATH, dependencies=[PUBLIC])
def show_account(request: Request, state: StateOf, done: Note = None) -> Response:
    member = page_session(request, state)
    if member is None:
        return redirect_to_login(request, state)
    with state.resources.unit_of_work() as uow:
        person = accounts.get(uow, member.user_id)
        return session_page(
            member,
            state,
            "account.html",
            name=person.name,
            email=person.email,
            sessions=sessions.list_of(uow, member.user_id),
            own_session=member.caller.session_id,
            notice=_NOTES.get(done or ""),
        )


@router.post(page_urls.SESSIONS_PATH, dependencies=[PUBLIC])
def end_sessions(request: Request, state: StateOf, form: FormOf) -> Response:
    """End one of the person's other sessions, or all of them."""
    member = page_session_of_form(request, state, form)
    if member is None:
        return redirect_to_login(request, state)
    wanted = form.get("session", "")
    with state.resources.unit_of_work() as uow:
        if wanted == "others":
            sessions.end_all(uow, member.user_id, but=member.caller.session_id)
        else:
            sessions.end(uow, _session_id(wanted), user_id=member.user_id)
    return redirect_to_path(state, f"{page_urls.ACCOUNT_PATH}?done=sessions")


def _session_id(wanted: str) -> int:
    if not (wanted.isascii() and wanted.isdigit() and len(wanted) <= len(str(ids.MAX_ID))):
        raise SESSION_NOT_FOUND()
    return min(int(wanted), ids.MAX_ID)


@router.get(page_urls.PASSWORD_PATH, dependencies=[PUBLIC])
def show_password(request: Request, state: StateOf) -> Response:
    member = page_session(request, state)
    if member is None:
        return redirect_to_login(request, state)
    return _password_page(state, member, _person(state, member).email)


@router.post(page_urls.PASSWORD_PATH, dependencies=[LOGIN])
async def change_password(request: Request, state: StateOf, form: FormOf) -> Response:
    """Set a new password for a person who knows the present one, and end their other sessions."""
    member = await run_in_threadpool(page_session_of_form, request, state, form)
    if member is None:
        return redirect_to_login(request, state)
    person = await run_in_threadpool(_person, state, member)
    try:
        passwords.require_length(form.get("password", ""))
        attempt = await _proven(request, state, person.email, form)
    except DomainError as error:
        if error.kind not in {Kind.INVALID, Kind.RATE_LIMITED}:
            raise
        return _password_page(state, member, person.email, error)
    made = await state.hashing_pool.run(partial(passwords.make, form["password"]))
    await state.in_unit_of_work(
        partial(
            registration.change_password,
            user_id=member.user_id,
            expected=attempt.password_hash,
            password_hash=made,
            session_id=member.caller.session_id,
            request_id=current_request_id(),
        )
    )
    return redirect_to_path(state, f"{page_urls.ACCOUNT_PATH}?done=password")


@router.get(page_urls.EMAIL_PATH, dependencies=[PUBLIC])
def show_email(request: Request, state: StateOf, sent: Note = None) -> Response:
    member = page_session(request, state)
    if member is None:
        return redirect_to_login(request, state)
    if sent is not None:
        return page("mailed.html")
    return _email_page(state, member, _person(state, member).email)


@router.post(page_urls.EMAIL_PATH, dependencies=[LOGIN])
async def ask_for_address(request: Request, state: StateOf, form: FormOf) -> Response:
    """Mail a link to the new address, or word that it is taken; the answer is the same."""
    member = await run_in_threadpool(page_session_of_form, request, state, form)
    if member is None:
        return redirect_to_login(request, state)
    person = await run_in_threadpool(_person, state, member)
    typed = form.get("email", "").strip()
    try:
        email = accounts.normalise_email(typed)
        async with padded_duration():
            await _proven(request, state, person.email, form)
            await state.in_unit_of_work(
                partial(
                    account_mails.request_mail,
                    kind=MailKind.NEW_ADDRESS,
                    email=email,
                    user_id=member.user_id,
                    request_id=current_request_id(),
                )
            )
    except DomainError as error:
        if error.kind not in {Kind.INVALID, Kind.RATE_LIMITED}:
            raise
        return _email_page(state, member, person.email, typed=typed, error=error)
    return redirect_to_path(state, f"{page_urls.EMAIL_PATH}?sent=yes")


@router.get(page_urls.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
def show_new_address(request: Request, state: StateOf, token: Token = "") -> Response:
    """Only for the person who asked for the change, so that no other can be talked into it."""
    member = page_session(request, state)
    if member is None:
        return redirect_to_login(request, state)
    with state.resources.unit_of_work() as uow:
        keyring = state.resources.keyring
        email = registration.read_new_address(uow, keyring, token, member.user_id)
        current = accounts.get(uow, member.user_id).email
    return session_page(
        member, state, "confirm_email.html", token=token, email=email, current_email=current
    )


@router.post(page_urls.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
def change_address(request: Request, state: StateOf, form: FormOf, token: Token = "") -> Response:
    member = page_session_of_form(request, state, form)
    if member is None:
        return redirect_to_login(request, state)
    with state.resources.unit_of_work() as uow:
        email = registration.change_address(
            uow,
            state.resources.keyring,
            form.get("token") or token,
            member.user_id,
            request_id=current_request_id(),
        )
    reply = redirect_to_path(state, f"{page_urls.ACCOUNT_PATH}?done=address")
    state.cookies.keep_known(reply, logins.known_browser_token(state.resources.keyring, email))
    return reply


async def _proven(request: Request, state: State, email: str, form: FormFields) -> Attempt:
    """Check the password that the person typed once more; failures count as at a login.

    Raises ``password.wrong`` and ``login.paused``.
    """
    known = request.cookies.get(state.cookies.known)
    client = client_address(request)

    keyring = state.resources.keyring
    attempt = await state.in_unit_of_work(
        lambda uow: logins.begin(uow, keyring, email=email, client=client, known=known)
    )
    check = partial(passwords.verify, attempt.password_hash, form.get("current", ""))
    verdict = await state.hashing_pool.run(check)
    if not verdict.matches:
        raise PASSWORD_WRONG()
    await state.in_unit_of_work(partial(logins.clear, attempt=attempt))
    return attempt


def _person(state: State, member: PageSession) -> User:
    with state.resources.unit_of_work() as uow:
        return accounts.get(uow, member.user_id)


def _password_page(
    state: State, member: PageSession, email: str, error: DomainError | None = None
) -> Response:
    problem = None if error is None else error.message
    status = _status(error)
    return session_page(
        member, state, "change_password.html", status=status, email=email, problem=problem
    )


def _email_page(
    state: State,
    member: PageSession,
    current: str,
    *,
    typed: str = "",
    error: DomainError | None = None,
) -> Response:
    return session_page(
        member,
        state,
        "change_email.html",
        status=_status(error),
        current_email=current,
        email=typed,
        problem=None if error is None else error.message,
    )


def _status(error: DomainError | None) -> int:
    if error is None:
        return 200
    return 429 if error.kind is Kind.RATE_LIMITED else 422
