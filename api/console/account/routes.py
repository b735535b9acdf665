"""The pages of a person's account: password, e-mail address, sessions, and what happened to it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.auth.logins import verify_password
from api.auth.redirects import redirect_to_path
from api.auth.requirements import LOGIN, PUBLIC
from api.client_details import browser_name, client_address
from api.console.requests import (
    Console,
    ConsoleForm,
    ConsoleRequest,
    EmptyForm,
    RecentConsole,
    RecentConsoleForm,
)
from api.console.typed_forms import build_error_form
from api.cookies import KNOWN_BROWSER_COOKIE
from api.limits.bulkheads import PASSWORDS, RECORDS
from api.pages.account.keys import list_newest_keys, read_ticked_boxes
from api.paging import Cursor
from api.record_ids import parse_id
from api.response_timing import pad_duration
from api.route_classes import ThreadedRoute
from api.state import Transaction
from core.errors import DomainError, Kind
from core.errors.people import ADDRESS_HAS_RECORD
from models import RecordedEvent
from services import recovery, security_events
from services.access import sessions
from services.accounts import (
    account_mails,
    accounts,
    email_addresses,
    logins,
    page_paths,
    passwords,
    unsolicited_mail,
)
from services.accounts.account_mails import MailKind
from services.accounts.factors import passkeys
from services.accounts.logins import Attempt
from services.event_origins import CredentialKind
from services.oauth import grants
from services.paging import PageRequest
from services.recovery import EndedAccess
from services.security_events import EventType
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


router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)

Token = Annotated[str, Query()]

# The kinds of errors that a form can correct.
_SHOWN = (Kind.INVALID, Kind.RATE_LIMITED)
EVENTS_ON_ACCOUNT = 5
EVENTS_ON_PAGE = 50


@router.get(page_paths.ACCOUNT_PATH, dependencies=[PUBLIC])
def show_account(console: Console, uow: Transaction) -> Response:
    person = accounts.get(uow, console.user_id)
    lately = security_events.page(uow, console.user_id, PageRequest(EVENTS_ON_ACCOUNT))
    return console.render_page(
        "account.html",
        name=person.name,
        email=person.email,
        sessions=sessions.list_of(uow, console.user_id),
        own_session=console.caller.session_id,
        events=[event_line(each) for each in lately.rows],
    )


@router.post(page_paths.SESSIONS_PATH, dependencies=[PUBLIC])
def end_sessions(console: ConsoleForm, uow: Transaction) -> Response:
    wanted = console.form.get("session", "")
    if wanted == "others":
        sessions.end_all(uow, console.user_id, but=console.caller.session_id)
    else:
        sessions.end(uow, parse_id(wanted) or 0, user_id=console.user_id)
    words = "You are logged out everywhere else." if wanted == "others" else "Logged out there."
    return console.redirect_with_notice(page_paths.ACCOUNT_PATH, words)


@router.get(page_paths.PASSWORD_PATH, dependencies=[PUBLIC])
def show_password(console: RecentConsole, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        keys, more = list_newest_keys(uow, console.user_id)
        given = grants.list_of(uow, console.user_id).rows
        own_passkeys = passkeys.list_of(uow, console.user_id)
        own_endpoints = webhook_endpoints.list_live_endpoints(uow, console.user_id)
        email = accounts.get(uow, console.user_id).email
    return console.render_form(
        "change_password.html",
        form,
        email=email,
        grants=given,
        ends_grants="end_grants" in console.form,
        keys=keys,
        more_keys=more,
        passkeys=own_passkeys,
        endpoints=own_endpoints,
        **read_ticked_boxes(console.form),
    )


@router.post(page_paths.PASSWORD_PATH, dependencies=[LOGIN])
async def change_password(console: RecentConsoleForm) -> Response:
    """Set a new password for a person who knows the present one, and end their other sessions."""
    form = console.form
    email, name = await RECORDS.run(_personal_words, console)
    ending = EndedAccess("end_grants" in form, *read_ticked_boxes(form).values())
    try:
        passwords.require_allowed(form.get("password", ""), email, name)
        attempt = await _proven(console, email)
    except DomainError as error:
        return await RECORDS.run(show_password, console, build_error_form(error, *_SHOWN))
    made = await PASSWORDS.run(passwords.make, form["password"])
    await console.state.in_unit_of_work(
        recovery.change_password,
        caller=console.caller,
        expected=attempt.password_hash,
        password_hash=made,
        ending=ending,
    )
    words = "Your password is changed, and you are logged out everywhere else."
    return console.redirect_with_notice(page_paths.ACCOUNT_PATH, words)


@router.get(page_paths.EMAIL_PATH, dependencies=[PUBLIC])
def show_email(console: RecentConsole, form: EmptyForm) -> Response:
    current, _ = _personal_words(console)
    return console.render_form(
        "change_email.html",
        form,
        email=console.form.get("email", "").strip(),
        current_email=current,
    )


@router.post(page_paths.EMAIL_PATH, dependencies=[LOGIN])
async def ask_for_address(console: RecentConsoleForm) -> Response:
    """Mail a link to the new address, also if it has an account: nobody learns that by asking."""
    current, _ = await RECORDS.run(_personal_words, console)
    try:
        email = email_addresses.normalise_address(console.form.get("email", ""))
        async with pad_duration():
            await _proven(console, current)
            await console.state.in_unit_of_work(
                account_mails.request_mail,
                MailKind.NEW_ADDRESS,
                email,
                user_id=console.user_id,
                source=unsolicited_mail.source_digest(
                    console.state.resources.keyring, client_address(console.request)
                ),
            )
    except DomainError as error:
        return await RECORDS.run(show_email, console, build_error_form(error, *_SHOWN))
    words = "We’re mailing a link to the new address. Nothing is changed before it is opened."
    return console.redirect_with_notice(page_paths.ACCOUNT_PATH, words)


@router.get(page_paths.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
def show_new_address(console: RecentConsole, uow: Transaction, token: Token = "") -> Response:
    """Show the change to the person who asked for it; nobody else can be talked into it."""
    new = recovery.read_new_address(uow, token, console.user_id)
    return console.render_page(
        "confirm_email.html",
        token=token,
        email=new.email,
        has_record=new.has_record,
        current_email=accounts.get(uow, console.user_id).email,
    )


@router.post(page_paths.CONFIRM_EMAIL_PATH, dependencies=[PUBLIC])
def change_address(console: RecentConsoleForm, token: Token = "") -> Response:
    keyring, secret = console.state.resources.keyring, console.form.get("token") or token
    try:
        with console.unit_of_work() as uow:
            person = recovery.change_address(
                uow,
                secret,
                console.caller,
                erases="erase" in console.form,
                shown="show" in console.form,
            )
            known = logins.known_browser_token(keyring, person)
    except DomainError as error:
        if error.code != ADDRESS_HAS_RECORD.code:
            raise
        # A record came since the page was shown, which now says so.
        path = f"{page_paths.CONFIRM_EMAIL_PATH}?token={quote(secret)}"
        return redirect_to_path(console.state, path)
    reply = console.redirect_with_notice(
        page_paths.ACCOUNT_PATH, "Your account has its new address."
    )
    console.state.cookies.set(reply, KNOWN_BROWSER_COOKIE, known)
    return reply


async def _proven(console: ConsoleRequest, email: str) -> Attempt:
    """Check the password that the person typed once more; failures count as at a login.

    Raises ``password.wrong`` and ``login.paused``.
    """
    typed = console.form.get("current", "")
    attempt, _ = await verify_password(console.request, console.state, email, typed)
    await console.state.in_unit_of_work(logins.clear, attempt)
    return attempt


def _personal_words(console: ConsoleRequest) -> tuple[str, str | None]:
    with console.unit_of_work() as uow:
        person = accounts.get(uow, console.user_id)
        return person.email, person.name


@router.get(page_paths.EVENTS_PATH, dependencies=[PUBLIC])
def show_events(console: Console, uow: Transaction, cursor: Cursor = None) -> Response:
    wanted = PageRequest(EVENTS_ON_PAGE, cursor=cursor)
    found = security_events.page(uow, console.user_id, wanted)
    events = [event_line(each) for each in found.rows]
    return console.render_page("account_events.html", events=events, next_cursor=found.next_cursor)
