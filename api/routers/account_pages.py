"""A person's pages about their own account."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.access import page_sessions
from api.access.account_events import event_lines
from api.access.answer_timing import padded_duration
from api.access.begun_sessions import prove_password
from api.access.browsers import mail_source
from api.access.key_choices import (
    ended_boxes,
    keys_to_ask,
    ticked_endpoints,
    ticked_keys,
    ticked_passkeys,
)
from api.access.page_sessions import (
    FormFields,
    FormMember,
    FormOf,
    Member,
    RecentFormMember,
    RecentMember,
    session_page,
)
from api.access.requirements import LOGIN, PUBLIC
from api.errors import STATUS_OF
from api.limits.bulkheads import RECORDS
from api.pages.frame import page
from api.parameters import StateOf
from api.request_ids import current_request_id
from api.state import State
from core import ids
from core.errors import DomainError, Kind
from core.refusals.access import SESSION_NOT_FOUND
from services import recovery
from services.access import sessions
from services.events import event_reading
from services.mailing.addresses import shown_addresses
from services.oauth import grants
from services.paging import PageRequest
from services.people import (
    account_mails,
    accounts,
    email_addresses,
    known_browsers,
    logins,
    page_urls,
    passwords,
)
from services.people import registration as service
from services.people.account_mails import MailKind
from services.people.factors import passkeys
from services.people.logins import Attempt
from services.recovery import Ending
from services.webhooks import webhook_endpoints

# No operations of the API, so not in its document. The pages are for people who are logged in.
router = APIRouter(include_in_schema=False)

Note = Annotated[str | None, Query()]
Token = Annotated[str, Query()]

EVENTS_ON_ACCOUNT = 5
_NOTES = {
    "password": "Your password is changed, and you are logged out everywhere else.",
    "address": "Your account has its new address.",
    "shown": "Your lists get to know your address.",
    "merge": "Your account has its new address. In three days its subscriptions are yours too.",
    "sessions": "That is done.",
}


@router.get(page_urls.ACCOUNT_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_account(state: StateOf, member: Member, done: Note = None) -> Response:
    with state.resources.unit_of_work() as uow:
        person = accounts.get(uow, member.user_id)
        lately = event_reading.page(uow, member.user_id, PageRequest(EVENTS_ON_ACCOUNT))
        return session_page(
            member,
            state,
            "account.html",
            name=person.name,
            email=person.email,
            sessions=sessions.list_of(uow, member.user_id),
            own_session=member.caller.session_id,
            events=event_lines(lately.rows),
            notice=_NOTES.get(done or ""),
        )


@router.post(page_urls.SESSIONS_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def end_sessions(state: StateOf, member: FormMember, form: FormOf) -> Response:
    """End one of the person's other sessions, or all of them."""
    wanted = form.get("session", "")
    with state.resources.unit_of_work() as uow:
        if wanted == "others":
            sessions.end_all(uow, member.user_id, but=member.caller.session_id)
        elif wanted.isascii() and wanted.isdigit() and len(wanted) <= len(str(ids.MAX_ID)):
            sessions.end(uow, min(int(wanted), ids.MAX_ID), user_id=member.user_id)
        else:
            raise SESSION_NOT_FOUND()
    return _account(state, "sessions")


@router.get(page_urls.PASSWORD_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_password(state: StateOf, member: RecentMember) -> Response:
    return _password_page(state, member, {})


@router.post(page_urls.PASSWORD_PATH, dependencies=[LOGIN])
async def change_password(
    request: Request, state: StateOf, member: RecentFormMember, form: FormOf
) -> Response:
    """Set a new password for a person who knows the present one, and end their other sessions."""
    email, name = await RECORDS.run(_personal_words, state, member)
    ending = Ending(
        "end_grants" in form, ticked_keys(form), ticked_passkeys(form), ticked_endpoints(form)
    )
    try:
        passwords.require_allowed(form.get("password", ""), email, name)
        attempt = await _proven(request, state, email, form)
    except DomainError as error:
        return await RECORDS.run(_password_page, state, member, form, error)
    made = await state.hashing_pool.run(partial(passwords.make, form["password"]))
    await state.in_unit_of_work(
        partial(
            recovery.change_password,
            caller=member.caller,
            expected=attempt.password_hash,
            password_hash=made,
            ending=ending,
            request_id=current_request_id(),
        )
    )
    return _account(state, "password")


@router.get(page_urls.EMAIL_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_email(state: StateOf, member: RecentMember, sent: Note = None) -> Response:
    if sent is not None:
        return page("mailed.html")
    return _email_page(state, member)


@router.post(page_urls.EMAIL_PATH, dependencies=[LOGIN])
async def ask_for_address(
    request: Request, state: StateOf, member: RecentFormMember, form: FormOf
) -> Response:
    """Mail a link to the new address, whoever has it by now: nobody learns that by asking."""
    current = await RECORDS.run(_email_of, state, member)
    typed = form.get("email", "").strip()
    try:
        mail = partial(
            account_mails.request_mail,
            kind=MailKind.NEW_ADDRESS,
            email=email_addresses.normalise(typed),
            user_id=member.user_id,
            source=mail_source(request, state),
            request_id=current_request_id(),
        )
        async with padded_duration():
            await _proven(request, state, current, form)
            await state.in_unit_of_work(mail)
    except DomainError as error:
        return await RECORDS.run(_email_page, state, member, typed, error)
    return page_sessions.redirect_to_path(state, f"{page_urls.EMAIL_PATH}?sent=yes")


@router.get(page_urls.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_new_address(state: StateOf, member: RecentMember, token: Token = "") -> Response:
    """Only for the person who asked for the change, so that no other can be talked into it."""
    with state.resources.unit_of_work() as uow:
        email = service.read_new_address(uow, state.resources.keyring, token, member.user_id)
        current = accounts.get(uow, member.user_id).email
    return session_page(
        member, state, "confirm_email.html", token=token, email=email, current_email=current
    )


@router.post(page_urls.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def change_address(
    state: StateOf, member: RecentFormMember, form: FormOf, token: Token = ""
) -> Response:
    keyring, secret = state.resources.keyring, form.get("token") or token
    request_id = current_request_id()
    with state.resources.unit_of_work() as uow:
        person = service.change_address(uow, keyring, secret, member.caller, request_id=request_id)
        if person is None:
            return page_sessions.redirect_to_path(state, f"{page_urls.MERGE_PATH}?sent=yes")
        known = known_browsers.known_browser_token(keyring, person)
    reply = _account(state, "address")
    state.cookies.keep_known(reply, known)
    return reply


async def _proven(request: Request, state: State, email: str, form: FormFields) -> Attempt:
    """Check the password that the person typed once more; failures count as at a login.

    Raises ``password.wrong`` and ``login.paused``.
    """
    typed = form.get("current", "")
    attempt, _ = await prove_password(request, state, email, typed)
    await state.in_unit_of_work(partial(logins.clear, attempt=attempt))
    return attempt


def _email_of(state: State, member: Member) -> str:
    return _personal_words(state, member)[0]


def _personal_words(state: State, member: Member) -> tuple[str, str | None]:
    """The person's address and name."""
    with state.resources.unit_of_work() as uow:
        person = accounts.get(uow, member.user_id)
        return person.email, person.name


def _password_page(
    state: State, member: Member, form: FormFields, error: DomainError | None = None
) -> Response:
    with state.resources.unit_of_work() as uow:
        keys, more = keys_to_ask(uow, member.user_id)
        given = grants.list_of(uow, member.user_id).rows
        own_passkeys = passkeys.list_of(uow, member.user_id)
        own_endpoints = webhook_endpoints.live_of(uow, member.user_id)
    return _form_page(
        state,
        member,
        "change_password.html",
        error,
        email=_email_of(state, member),
        grants=given,
        ends_grants="end_grants" in form,
        keys=keys,
        more_keys=more,
        passkeys=own_passkeys,
        endpoints=own_endpoints,
        **ended_boxes(form),
    )


def _email_page(
    state: State, member: Member, typed: str = "", error: DomainError | None = None
) -> Response:
    with state.resources.unit_of_work() as uow:
        values = {
            "current_email": accounts.get(uow, member.user_id).email,
            "can_show": shown_addresses.can_show(uow, member.user_id),
        }
    return _form_page(state, member, "change_email.html", error, email=typed, **values)


def _form_page(
    state: State,
    member: Member,
    template: str,
    error: DomainError | None = None,
    **values: Any,
) -> Response:
    """The page, once more with what was wrong in its form; raises an error of anything else."""
    if error is None:
        return session_page(member, state, template, problem=None, **values)
    if error.kind not in {Kind.INVALID, Kind.RATE_LIMITED}:
        raise error
    status, problem = STATUS_OF[error.kind], error.message
    return session_page(member, state, template, status=status, problem=problem, **values)


def _account(state: State, done: str) -> Response:
    return page_sessions.redirect_to_path(state, f"{page_urls.ACCOUNT_PATH}?done={done}")
