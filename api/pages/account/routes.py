"""A person's pages about their own account."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.answers import import_errors_url
from api.auth import page_sessions
from api.auth.page_sessions import (
    FormFields,
    FormMember,
    FormOf,
    Member,
    RecentFormMember,
    RecentMember,
    mail_source,
    prove_password,
    redirect_to_path,
    session_page,
)
from api.auth.requirements import LOGIN, PUBLIC
from api.browsers import KNOWN, browser_name
from api.errors import STATUS_OF
from api.html.frame import page
from api.limits.bulkheads import PASSWORDS, RECORDS
from api.pages.account.keys import ended_boxes, keys_to_ask
from api.pages.sign_up.submission import padded_duration
from api.parameters import Cursor, StateOf
from api.request_ids import current_request_id
from api.state import State
from core import ids
from core.errors import DomainError, Kind
from core.errors.access import SESSION_NOT_FOUND
from core.errors.people import ADDRESS_HAS_RECORD
from models import RecordedEvent
from services import recovery, security_events
from services.access import sessions
from services.accounts import (
    account_mails,
    accounts,
    email_addresses,
    logins,
    mailed_tokens,
    passwords,
)
from services.accounts.account_mails import MailKind
from services.accounts.factors import passkeys
from services.accounts.logins import Attempt
from services.accounts.mailed_tokens import (
    EVENTS_PATH,
    GRANTS_PATH,
    IMPORTS_PATH,
    KEYS_PATH,
    NEW_KEY_PATH,
)
from services.event_origins import CredentialKind
from services.oauth import grants
from services.paging import PageRequest
from services.recovery import Ending
from services.security_events import EventType
from services.subscriptions.imports import records
from services.webhooks import webhook_endpoints

_WORDS = {
    EventType.LOGIN_SUCCEEDED: "Logged in",
    EventType.LOGIN_FAILED: "A login failed: the password or the code was wrong",
    EventType.SESSION_ENDED: "Logged out",
    EventType.PASSWORD_CHANGED: "The password was changed",
    EventType.PASSWORD_RESET: "A new password was set by a mailed link",
    EventType.ADDRESS_CHANGED: "The e-mail address was changed",
    EventType.ADDRESS_UNDONE: "A change of the e-mail address was undone",
    EventType.KEY_CREATED: "An API key was made",
    EventType.KEY_ENDED: "An API key was ended",
    EventType.GRANT_CREATED: "An app was given access",
    EventType.GRANT_ENDED: "An app lost its access",
    EventType.FACTOR_ADDED: "A second factor was added",
    EventType.FACTOR_REMOVED: "A second factor was removed",
    EventType.EXPORT_CREATED: "An export of a list was made",
    EventType.MEMBERS_READ: "Very many pages of members were read",
    EventType.WEBHOOK_CREATED: "A webhook endpoint was made",
    EventType.WEBHOOK_CHANGED: "A webhook endpoint got another URL",
    EventType.WEBHOOK_ENDED: "A webhook endpoint was ended",
    EventType.PLAN_REFUSED: "Something was refused that the plan doesn’t have",
    EventType.QUOTA_REFUSED: "Something was refused that is more than the plan has",
    EventType.PLAN_CHANGED: "The plan was changed",
    EventType.OPERATOR_ACTED: "You did something as an operator",
}
# The words for events with a number, by its name.
_SEVERAL = {
    "attempts": "{} logins in a row failed: the password or the code was wrong",
    "sessions": "{} browsers were logged out",
    "keys": "{} API keys were ended",
    "endpoints": "{} webhook endpoints were ended",
    "grants": "{} apps lost their access",
}
_BY = {
    CredentialKind.KEY: "by an API key",
    CredentialKind.GRANT: "by an app with access",
    CredentialKind.COMMAND: "by the operator",
}


@dataclass(frozen=True)
class EventLine:
    """An event; its origin is such as "Firefox on Linux, 192.0.2.7"."""

    text: str
    origin: str
    occurred_at: datetime


def event_line(event: RecordedEvent) -> EventLine:
    # A later release, which may run at the same time, records more types.
    text = _WORDS[EventType(event.type)] if event.type in [*EventType] else event.type
    for name, words in _SEVERAL.items():
        if (number := event.detail.get(name, 1)) > 1:
            text = words.format(number)
            break
    kind = event.credential_kind
    by = None if kind is None else _BY.get(CredentialKind(kind))
    origin = filter(None, (browser_name(event.user_agent), event.ip, by))
    return EventLine(text, ", ".join(origin), event.occurred_at)


router = APIRouter(include_in_schema=False)

Note = Annotated[str | None, Query()]
Token = Annotated[str, Query()]

EVENTS_ON_ACCOUNT = 5
_NOTES = {
    "password": "Your password is changed, and you are logged out everywhere else.",
    "address": "Your account has its new address.",
    "sessions": "That is done.",
}


@router.get(mailed_tokens.ACCOUNT_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_account(state: StateOf, member: Member, done: Note = None) -> Response:
    with state.resources.unit_of_work() as uow:
        person = accounts.get(uow, member.user_id)
        lately = security_events.page(uow, member.user_id, PageRequest(EVENTS_ON_ACCOUNT))
        return session_page(
            member,
            state,
            "account.html",
            name=person.name,
            email=person.email,
            sessions=sessions.list_of(uow, member.user_id),
            own_session=member.caller.session_id,
            events=[event_line(each) for each in lately.rows],
            notice=_NOTES.get(done or ""),
        )


@router.post(mailed_tokens.SESSIONS_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def end_sessions(state: StateOf, member: FormMember, form: FormOf) -> Response:
    wanted = form.get("session", "")
    with state.resources.unit_of_work() as uow:
        if wanted == "others":
            sessions.end_all(uow, member.user_id, but=member.caller.session_id)
        elif wanted.isascii() and wanted.isdigit() and len(wanted) <= len(str(ids.MAX_ID)):
            sessions.end(uow, min(int(wanted), ids.MAX_ID), user_id=member.user_id)
        else:
            raise SESSION_NOT_FOUND()
    return _account(state, "sessions")


@router.get(mailed_tokens.PASSWORD_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_password(state: StateOf, member: RecentMember) -> Response:
    return _password_page(state, member, {})


@router.post(mailed_tokens.PASSWORD_PATH, dependencies=[LOGIN])
async def change_password(
    request: Request, state: StateOf, member: RecentFormMember, form: FormOf
) -> Response:
    """Set a new password for a person who knows the present one, and end their other sessions."""
    email, name = await RECORDS.run(_personal_words, state, member)
    ending = Ending("end_grants" in form, *ended_boxes(form).values())
    try:
        passwords.require_allowed(form.get("password", ""), email, name)
        attempt = await _proven(request, state, email, form)
    except DomainError as error:
        return await RECORDS.run(_password_page, state, member, form, error)
    made = await PASSWORDS.run(partial(passwords.make, form["password"]))
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


@router.get(mailed_tokens.EMAIL_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_email(state: StateOf, member: RecentMember, sent: Note = None) -> Response:
    if sent is not None:
        return page("mailed.html")
    return _email_page(state, member)


@router.post(mailed_tokens.EMAIL_PATH, dependencies=[LOGIN])
async def ask_for_address(
    request: Request, state: StateOf, member: RecentFormMember, form: FormOf
) -> Response:
    """Mail a link to the new address, also if it has an account: nobody learns that by asking."""
    current, _ = await RECORDS.run(_personal_words, state, member)
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
    return page_sessions.redirect_to_path(state, f"{mailed_tokens.EMAIL_PATH}?sent=yes")


@router.get(mailed_tokens.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_new_address(state: StateOf, member: RecentMember, token: Token = "") -> Response:
    """Show the change to the person who asked for it; nobody else can be talked into it."""
    with state.resources.unit_of_work() as uow:
        new = recovery.read(uow, state.resources.keyring, token, member.user_id)
        current = accounts.get(uow, member.user_id).email
    return session_page(
        member,
        state,
        "confirm_email.html",
        token=token,
        email=new.email,
        has_record=new.has_record,
        current_email=current,
    )


@router.post(mailed_tokens.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def change_address(
    state: StateOf, member: RecentFormMember, form: FormOf, token: Token = ""
) -> Response:
    keyring, secret = state.resources.keyring, form.get("token") or token
    try:
        with state.resources.unit_of_work() as uow:
            person = recovery.change(
                uow,
                keyring,
                secret,
                member.caller,
                erases="erase" in form,
                shown="show" in form,
                request_id=current_request_id(),
            )
            known = logins.known_browser_token(keyring, person)
    except DomainError as error:
        if error.code != ADDRESS_HAS_RECORD.code:
            raise
        # A record came since the page was shown, which now says so.
        query = urlencode({"token": secret})
        return page_sessions.redirect_to_path(state, f"{mailed_tokens.CONFIRM_EMAIL_PATH}?{query}")
    reply = _account(state, "address")
    state.cookies.keep(reply, KNOWN, known)
    return reply


async def _proven(request: Request, state: State, email: str, form: FormFields) -> Attempt:
    """Check the password that the person typed once more; failures count as at a login.

    Raises ``password.wrong`` and ``login.paused``.
    """
    typed = form.get("current", "")
    attempt, _ = await prove_password(request, state, email, typed)
    await state.in_unit_of_work(partial(logins.clear, attempt=attempt))
    return attempt


def _personal_words(state: State, member: Member) -> tuple[str, str | None]:
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
        email=_personal_words(state, member)[0],
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
    current, _ = _personal_words(state, member)
    return _form_page(state, member, "change_email.html", error, email=typed, current_email=current)


def _form_page(
    state: State,
    member: Member,
    template: str,
    error: DomainError | None = None,
    **values: Any,
) -> Response:
    """Return the page with the error of its form; raises an error that no form corrects."""
    if error is None:
        return session_page(member, state, template, problem=None, **values)
    if error.kind not in {Kind.INVALID, Kind.RATE_LIMITED}:
        raise error
    status, problem = STATUS_OF[error.kind], error.message
    return session_page(member, state, template, status=status, problem=problem, **values)


def _account(state: State, done: str) -> Response:
    return page_sessions.redirect_to_path(state, f"{mailed_tokens.ACCOUNT_PATH}?done={done}")


# Former addresses of pages, which people have in bookmarks and mails.


@router.get("/account/keys", dependencies=[PUBLIC])
async def lead_to_keys(state: StateOf) -> Response:
    return redirect_to_path(state, KEYS_PATH)


@router.get("/account/keys/new", dependencies=[PUBLIC])
async def lead_to_new_key(state: StateOf) -> Response:
    return redirect_to_path(state, NEW_KEY_PATH)


@router.get("/account/grants", dependencies=[PUBLIC])
async def lead_to_grants(state: StateOf) -> Response:
    return redirect_to_path(state, GRANTS_PATH)


EVENTS_ON_PAGE = 50


@router.get(EVENTS_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_events(state: StateOf, member: Member, cursor: Cursor = None) -> Response:
    with state.resources.unit_of_work() as uow:
        wanted = PageRequest(EVENTS_ON_PAGE, cursor=cursor)
        found = security_events.page(uow, member.user_id, wanted)
    events = [event_line(each) for each in found.rows]
    return session_page(member, state, "events.html", events=events, next_cursor=found.next_cursor)


IMPORTS_ON_PAGE = 20


@router.get(IMPORTS_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_imports(state: StateOf, member: Member) -> Response:
    with state.resources.unit_of_work() as uow:
        found = records.list_of(uow, member.caller, PageRequest(IMPORTS_ON_PAGE), list_id=None)
    imports = [
        {
            "task": task,
            "errors_url": None if task.files_removed_at else import_errors_url(state, task.id),
        }
        for task in found.rows
    ]
    return session_page(member, state, "imports.html", imports=imports)
