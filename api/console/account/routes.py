"""Pages that change a user's password or e-mail address, and show sessions and security events."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query
from fastapi.responses import Response

from api.auth.logins import verify_password
from api.client_details import client_address
from api.console.requests import (
    ConsoleRequest,
    EmptyForm,
    LoginLimitedForm,
    PersonForm,
    PersonPage,
    RecentPersonForm,
    RecentPersonPage,
    build_router,
    shows_errors_on,
)
from api.console.security_event_lines import build_event_lines
from api.cookies import KNOWN_BROWSER_COOKIE
from api.limits.bulkheads import PASSWORDS
from api.pages.account.keys import list_newest_keys, read_ticked_boxes
from api.paging import Cursor
from api.record_ids import parse_id
from api.response_timing import pad_duration
from api.state import Transaction
from core.errors import DomainError, Kind
from core.errors.people import ADDRESS_HAS_RECORD
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
from services.oauth import grants
from services.paging import PageRequest
from services.recovery import EndedAccess
from services.senders import senders
from services.webhooks import webhook_endpoints

router = build_router("")

Token = Annotated[str, Query()]

# The kinds of errors that the user can fix by correcting the form or by trying again later.
_CORRECTABLE_KINDS = (Kind.INVALID, Kind.RATE_LIMITED)
EVENTS_ON_ACCOUNT = 5
EVENTS_ON_PAGE = 50


@router.get(page_paths.ACCOUNT_PATH)
def show_account(console: PersonPage, uow: Transaction) -> Response:
    person = accounts.get_user(uow, console.person_id)
    page = security_events.list_events(uow, console.person_id, PageRequest(EVENTS_ON_ACCOUNT))
    return console.render_page(
        "account.html",
        name=person.name,
        email=person.email,
        sessions=sessions.list_sessions(uow, console.person_id),
        own_session=console.caller.session_id,
        events=build_event_lines(uow, console.account_id, page.rows),
    )


@router.post(page_paths.SESSIONS_PATH)
def log_out_sessions(console: PersonForm, uow: Transaction) -> Response:
    selection = console.form.get("session", "")
    if selection == "others":
        sessions.revoke_sessions(uow, console.person_id, kept_session_id=console.caller.session_id)
    else:
        sessions.revoke_session(uow, parse_id(selection) or 0, person_id=console.person_id)
    notice = "The browser was logged out."
    if selection == "others":
        notice = "All other browsers were logged out."
    return console.redirect(page_paths.ACCOUNT_PATH, notice)


@router.get(page_paths.PASSWORD_PATH)
def show_password(console: RecentPersonPage, uow: Transaction, form: EmptyForm) -> Response:
    keys, more_keys = list_newest_keys(uow, console.account_id)
    ticked_boxes: dict[str, Any] = read_ticked_boxes(console.form)
    return console.render_page(
        "change_password.html",
        form,
        email=accounts.get_user(uow, console.person_id).email,
        grants=grants.list_grants(uow, console.caller).rows,
        ends_grants="end_grants" in console.form,
        keys=keys,
        more_keys=more_keys,
        passkeys=passkeys.list_passkeys(uow, console.person_id),
        endpoints=webhook_endpoints.list_live_endpoints(uow, console.account_id),
        senders=senders.list_senders(uow, console.account_id),
        **ticked_boxes,
    )


@router.post(page_paths.PASSWORD_PATH)
@shows_errors_on(show_password, kinds=_CORRECTABLE_KINDS)
async def change_password(console: LoginLimitedForm) -> Response:
    """Set a new password, and end all sessions of the user except the current session."""
    form = console.form
    person = await console.state.in_unit_of_work(accounts.get_user, console.person_id)
    ended_access = EndedAccess("end_grants" in form, *read_ticked_boxes(form).values())
    passwords.require_allowed_password(form.get("password", ""), person.email, person.name)
    attempt = await _prove_current_password(console, person.email)
    password_hash = await PASSWORDS.run(passwords.hash_password, form["password"])
    await console.state.in_unit_of_work(
        recovery.change_password,
        caller=console.caller,
        expected=attempt.password_hash,
        password_hash=password_hash,
        ending=ended_access,
    )
    notice = "Your password was changed, and all other browsers were logged out."
    return console.redirect(page_paths.ACCOUNT_PATH, notice)


@router.get(page_paths.EMAIL_PATH)
def show_email(console: RecentPersonPage, uow: Transaction, form: EmptyForm) -> Response:
    return console.render_page(
        "change_email.html",
        form,
        email=console.form.get("email", "").strip(),
        current_email=accounts.get_user(uow, console.person_id).email,
    )


@router.post(page_paths.EMAIL_PATH)
@shows_errors_on(show_email, kinds=_CORRECTABLE_KINDS)
async def request_address_change(console: LoginLimitedForm) -> Response:
    """Send a confirmation link to the new e-mail address of an account."""
    person = await console.state.in_unit_of_work(accounts.get_user, console.person_id)
    email = email_addresses.normalise_address(console.form.get("email", ""))
    async with pad_duration():
        await _prove_current_password(console, person.email)
        await console.state.in_unit_of_work(
            account_mails.enqueue_mail,
            MailKind.NEW_ADDRESS,
            email,
            limit=account_mails.HOURLY_LIMIT,
            person_id=console.person_id,
            source=unsolicited_mail.source_digest(
                console.state.resources.keyring, client_address(console.request)
            ),
        )
    notice = "We’re sending a link to the new address. Open the link to confirm the change."
    return console.redirect(page_paths.ACCOUNT_PATH, notice)


@router.get(page_paths.CONFIRM_EMAIL_PATH)
def show_new_address(console: RecentPersonPage, uow: Transaction, token: Token = "") -> Response:
    """Let only the user who requested the new address confirm it, so that nobody can be tricked
    into confirming an attacker's address.
    """
    new_address = recovery.read_new_address(uow, token, console.person_id)
    return console.render_page(
        "confirm_email.html",
        token=token,
        email=new_address.email,
        has_record=new_address.has_record,
        current_email=accounts.get_user(uow, console.person_id).email,
    )


@router.post(page_paths.CONFIRM_EMAIL_PATH)
def change_address(console: RecentPersonForm, uow: Transaction, token: Token = "") -> Response:
    keyring = console.state.resources.keyring
    secret = console.form.get("token") or token
    try:
        person = recovery.change_address(
            uow,
            secret,
            console.caller,
            erases="erase" in console.form,
            is_visible="show" in console.form,
        )
        browser_token = logins.create_browser_token(keyring, person)
    except DomainError as error:
        uow.roll_back()
        if error.code != ADDRESS_HAS_RECORD.code:
            raise
        # A person record with the new e-mail address was created after the page was loaded. Show
        # the confirmation page again, which asks whether to erase the person record with the new
        # address.
        return console.redirect(f"{page_paths.CONFIRM_EMAIL_PATH}?token={quote(secret)}")
    response = console.redirect(page_paths.ACCOUNT_PATH, "Your address was changed.")
    console.state.cookies.set(response, KNOWN_BROWSER_COOKIE, browser_token)
    return response


async def _prove_current_password(console: ConsoleRequest, email: str) -> Attempt:
    """Verify the current password in the form. A wrong password counts as a failed login."""
    password = console.form.get("current", "")
    attempt, _ = await verify_password(console.request, console.state, email, password)
    await console.state.in_unit_of_work(logins.clear_attempt, attempt)
    return attempt


@router.get(page_paths.EVENTS_PATH)
def show_events(console: PersonPage, uow: Transaction, cursor: Cursor = None) -> Response:
    page_request = PageRequest(EVENTS_ON_PAGE, cursor=cursor)
    page = security_events.list_events(uow, console.person_id, page_request)
    events = build_event_lines(uow, console.account_id, page.rows)
    return console.render_page("account_events.html", events=events, next_cursor=page.next_cursor)
