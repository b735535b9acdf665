"""Sessions of people who use our pages: their login, and the pages that are made for them.

Pages identify a person by the session cookie alone: keys and tokens are for programs. A browser
sends its cookies with every request to us, also when another site's page makes it. A write by
cookie therefore needs our own origin, or a token that other sites' pages can't read.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Request, Response

from api.bodies.forms import FormOrJsonBodyOf
from api.browsers import FIRST_STEP, FORM, KNOWN, SESSION, browser_name, client_address
from api.errors import STATUS_OF
from api.html.frame import HEADERS, page, redirect
from api.limits.bulkheads import AUTHENTICATION, PASSWORDS
from api.metrics import LOGINS
from api.state import State, state_of
from core.errors import DomainError, Kind, access, people, requests
from models import User
from services import event_origins
from services.access import sessions
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.accounts import logins, passwords, unsolicited_mail
from services.accounts.factors import passkeys, second_steps
from services.accounts.logins import Browser
from services.accounts.mailed_tokens import FACTORS_PATH, LOGIN_PATH
from services.paging import PageRequest
from services.security_events import EventType, record_hourly
from storage.redis.rate_counters import parse_limits
from storage.unit_of_work import UnitOfWork

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf_token"
_FORM_VALUE = re.compile(r"[A-Za-z0-9_-]{43}\Z")
# Printable ASCII without the backslash, which browsers read as a slash. A second slash at the start
# would make a host of the rest.
_OWN_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,8000}\Z")

FormFields = dict[str, str]
# The page whose script (htmx) sends the request.
_PAGE_OF_SCRIPT = "hx-current-url"


async def read_page_form(submission: FormOrJsonBodyOf) -> FormFields:
    """Return the fields of a page's form; raises for a body that no page sends."""
    if submission.fields and not submission.is_form:
        raise requests.BODY_NO_FORM_TYPE()
    fields = {name: str(value) for name, value in submission.fields.items()}
    # No keyboard types a NUL character, and the database stores no text with one.
    if any("\0" in value for value in fields.values()):
        raise requests.BODY_CHARACTER_INVALID()
    return fields


FormOf = Annotated[FormFields, Depends(read_page_form)]


def require_csrf(request: Request, state: State, cookie: str | None, token: object = None) -> None:
    """Refuse a write that another site's page may have sent; raises ``auth.csrf``.

    The CSRF token comes in the header, or as ``token`` from a form's field.
    """
    if request.headers.get("origin") == state.resources.settings.public_origin:
        return
    for sent in (token, request.headers.get(CSRF_HEADER)):
        if (
            cookie
            and isinstance(sent, str)
            and sessions.is_csrf_token(state.resources.keyring, cookie, sent)
        ):
            return
    raise access.AUTH_CSRF(header=CSRF_HEADER)


def form_cookie_value(request: Request, state: State) -> str:
    """Return what ties a form to this browser: the value of its form cookie, or a new one."""
    sent = state.cookies.read(request, FORM) or ""
    return sent if _FORM_VALUE.match(sent) else secrets.token_urlsafe(32)


def local_path(sent: object) -> str | None:
    """Return the path to open after a login; ``None`` when it could lead away from our own host."""
    return sent if isinstance(sent, str) and _OWN_PATH.match(sent) else None


def mail_source(request: Request, state: State) -> bytes | None:
    """Return under what mails are counted that the caller's network has sent to other people."""
    return unsolicited_mail.source_digest(state.resources.keyring, client_address(request))


@dataclass(frozen=True)
class PageSession:
    """The session of a person who is logged in, with the cookie that proves it."""

    caller: Caller
    cookie: str
    # Such a person gets the pages that set a second factor up, and no others.
    lacks_factor: bool
    # An operator runs this deployment.
    is_operator: bool

    @property
    def user_id(self) -> int:
        return self.caller.user_id


def page_session(request: Request, state: State) -> PageSession | None:
    """Return the session of this browser; ``None`` when no person is logged in."""
    cookie = state.cookies.read(request, SESSION)
    if not cookie:
        return None
    resources = state.resources
    try:
        found = sessions.read(
            resources.database,
            resources.keyring,
            cookie,
            everyone_needs_factor=resources.settings.require_second_factor,
        )
    except DomainError:
        return None
    event_origins.current().credential = found.caller.credential
    return PageSession(found.caller, cookie, found.lacks_factor, found.is_operator)


def page_session_of_form(request: Request, state: State, form: FormFields) -> PageSession | None:
    """Return the session of the browser that sent one of our forms; raises ``auth.csrf``."""
    member = page_session(request, state)
    if member is not None:
        require_csrf(request, state, member.cookie, form.get(CSRF_FIELD))
    return member


class LoginNeeded(Exception):
    """The page is for people who are logged in: the answer is a redirect to the login page.

    ``again``: they are, and not since so short a time as this page asks for.
    """

    def __init__(self, *, again: bool = False) -> None:
        self.again = again


class FactorNeeded(Exception):
    """The person must set up a second factor first: the answer is a redirect to that page."""


def require_member(member: PageSession | None) -> PageSession:
    """Raises ``LoginNeeded`` and ``FactorNeeded``."""
    found = _logged_in(member)
    if found.lacks_factor:
        raise FactorNeeded
    return found


@AUTHENTICATION.threaded
def _member(request: Request) -> PageSession:
    return require_member(page_session(request, state_of(request)))


@AUTHENTICATION.threaded
def _starter(request: Request) -> PageSession:
    return _logged_in(page_session(request, state_of(request)))


def _logged_in(member: PageSession | None) -> PageSession:
    if member is None:
        raise LoginNeeded
    return member


def require_recent(uow: UnitOfWork, member: PageSession) -> None:
    """Raises ``LoginNeeded`` when the person's login is too old for what the page is about."""
    try:
        require_recent_login(uow, member.caller)
    except DomainError:
        raise LoginNeeded(again=True) from None


def of_form(find: Callable[..., Any]) -> Any:
    """Depend on the session of the browser that sent one of our forms."""

    async def sent(
        # Before the form: only a person who is logged in has it read.
        member: Annotated[PageSession, Depends(find)],
        form: FormOf,
        request: Request,
    ) -> PageSession:
        require_csrf(request, state_of(request), member.cookie, form.get(CSRF_FIELD))
        return member

    return Depends(sent)


def recent(found: Any) -> Any:
    """Depend on a login that is new enough for what the page is about."""

    @AUTHENTICATION.threaded
    def logged_in_lately(request: Request, member: Annotated[PageSession, found]) -> PageSession:
        with state_of(request).resources.unit_of_work() as uow:
            require_recent(uow, member)
        return member

    return Depends(logged_in_lately)


_MEMBER, _FORM_MEMBER = Depends(_member), of_form(_member)
# People who may have no second factor yet, though they need one.
_STARTER, _FORM_STARTER = Depends(_starter), of_form(_starter)

Member = Annotated[PageSession, _MEMBER]
FormMember = Annotated[PageSession, _FORM_MEMBER]
Starter = Annotated[PageSession, _STARTER]
RecentMember = Annotated[PageSession, recent(_MEMBER)]
RecentFormMember = Annotated[PageSession, recent(_FORM_MEMBER)]
RecentStarter = Annotated[PageSession, recent(_STARTER)]
RecentFormStarter = Annotated[PageSession, recent(_FORM_STARTER)]


def require_form_csrf(request: Request, state: State, form: FormFields) -> None:
    """Check the CSRF token of a form that needs no login; raises ``auth.csrf``."""
    cookie = state.cookies.read(request, FORM)
    require_csrf(request, state, cookie, form.get(CSRF_FIELD))


def anonymous_page(
    request: Request,
    state: State,
    template: str,
    *,
    status: int = 200,
    form_cookie: str | None = None,
    **values: Any,
) -> Response:
    """A page for a person who may not be logged in.

    ``form_cookie``: its value, where the page's values depend on it.
    """
    value = form_cookie or form_cookie_value(request, state)
    reply = page_of_cookie(state, value, template, status=status, **values)
    state.cookies.keep(reply, FORM, value)
    return reply


def page_of_cookie(state: State, cookie: str, template: str, **values: Any) -> Response:
    """Return a page whose forms only the browser with this cookie can send."""
    token = sessions.csrf_token(state.resources.keyring, cookie)
    return page(template, base=state.resources.settings.public_base, csrf_token=token, **values)


def redirect_to_path(state: State, path: str) -> Response:
    """Redirect to a path below our own address; nothing that was sent can change the host."""
    return redirect(state.resources.settings.public_base + path)


async def redirect_to_login(request: Request, needed: LoginNeeded) -> Response:
    """Redirect to the login page, which leads back to this page."""
    state = state_of(request)
    base = state.resources.settings.public_base
    wanted = request.scope["path"]
    if request.url.query:
        wanted += f"?{request.url.query}"
    # A script asks for a part of a page: the browser leaves that page, and comes back to it.
    whole_page = request.headers.get(_PAGE_OF_SCRIPT, "")
    if whole_page.startswith(f"{base}/"):
        wanted = whole_page.removeprefix(base)
    query = ({"again": "yes"} if needed.again else {}) | {"next": wanted}
    path = f"{LOGIN_PATH}?{urlencode(query)}"
    if whole_page:
        return Response(headers={**HEADERS, "HX-Redirect": base + path})
    return redirect_to_path(state, path)


async def redirect_to_factors(request: Request, _: FactorNeeded) -> Response:
    return redirect_to_path(state_of(request), FACTORS_PATH)


async def prove_password(
    request: Request, state: State, email: str, password: str
) -> tuple[logins.Attempt, passwords.PasswordCheck]:
    """The counted attempt of a person whose password it is, and the check of the password.

    Raises ``password.wrong``, for an address without an account too, and ``login.paused``.
    """
    try:
        attempt = await state.in_unit_of_work(
            logins.begin,
            email=email,
            client=client_address(request),
            known=state.cookies.read(request, KNOWN),
        )
    except DomainError as error:
        if error.code == access.LOGIN_PAUSED.code:
            LOGINS.labels("paused").inc()
        raise
    # Outside of a transaction, so that no connection is held while the hash waits for its turn.
    check = await PASSWORDS.run(passwords.verify, attempt.password_hash, password)
    if not check.matches:
        LOGINS.labels("failed").inc()
        await state.in_unit_of_work(logins.fail, attempt)
        raise people.PASSWORD_WRONG()
    return attempt, check


def browser_of(request: Request, state: State) -> Browser:
    known = state.cookies.read(request, KNOWN)
    return Browser(browser_name(request.headers.get("user-agent")), known)


def second_step_page(
    request: Request,
    state: State,
    passkey_options: str | None,
    *,
    form_cookie: str,
    path: str,
    error: DomainError | None = None,
) -> Response:
    """The page that asks for the second factor, and leads to ``path``.

    ``passkey_options``: for the browser to sign by one of the person's passkeys, if there are any.
    """
    is_paused = error is not None and error.kind is Kind.RATE_LIMITED
    reply = anonymous_page(
        request,
        state,
        "second_step.html",
        # The factor is missing at first, and after a wrong one.
        status=STATUS_OF[Kind.RATE_LIMITED if is_paused else access.AUTH_SECOND_FACTOR.kind],
        form_cookie=form_cookie,
        scripted=passkey_options is not None,
        passkey_options=passkey_options,
        next=path,
        problem=None if error is None else error.message,
    )
    if error is not None and error.retry_after is not None:
        reply.headers["Retry-After"] = str(error.retry_after)
    return reply


@dataclass(frozen=True)
class _FirstStep:
    """A login whose password was right, and which needs a second factor."""

    cookie: str
    passkey_options: str | None


async def begin_session(
    request: Request,
    state: State,
    path: str,
    prove: Callable[[UnitOfWork], User],
    *,
    factor_shown: bool = False,
) -> Response:
    """Log in the person whom ``prove`` returns, and redirect them to ``path``.

    Each login is complete here and nowhere else: at first, once more, and after a mailed link.
    Without ``factor_shown`` a person who has a second factor gets no session, but 403 and the page
    that asks for it. The session has a new secret; the browser's earlier one ends, whichever user's
    it was.
    """
    before = await AUTHENTICATION.run(page_session, request, state)
    form_cookie = form_cookie_value(request, state)
    keyring = state.resources.keyring
    browser = browser_of(request, state)

    def begin(uow: UnitOfWork) -> tuple[str, str] | _FirstStep:
        person = prove(uow)
        if not factor_shown and sessions.is_asked(uow, person.id):
            return _FirstStep(
                second_steps.begin(keyring, person, form_cookie),
                passkeys.options_of_person(uow, person.id, form_cookie),
            )
        if before is not None and before.caller.session_id is not None:
            sessions.end(uow, before.caller.session_id)
        session = sessions.begin(uow, person.id, browser=browser.name)
        return session, logins.known_browser_token(keyring, person)

    begun = await state.in_unit_of_work(begin)
    if isinstance(begun, _FirstStep):
        options = begun.passkey_options
        reply = second_step_page(request, state, options, form_cookie=form_cookie, path=path)
        state.cookies.keep(reply, FIRST_STEP, begun.cookie)
        return reply
    LOGINS.labels("succeeded").inc()
    session, known = begun
    reply = redirect_to_path(state, path)
    state.cookies.keep(reply, SESSION, session)
    state.cookies.keep(reply, KNOWN, known)
    state.cookies.drop(reply, FIRST_STEP)
    return reply


# A stolen session whose login is old can't export, and would page through all members instead.


MAX_MEMBERS_OF_SESSION = 200
MAX_PAGES_AN_HOUR = 100
_PAGES_AN_HOUR = parse_limits(f"{MAX_PAGES_AN_HOUR}/hour")[0]


def bounded_members(caller: Caller, wanted: PageRequest) -> PageRequest:
    """Return the page that the caller gets; keys and tokens get what they ask for."""
    if caller.session_id is None:
        return wanted
    return replace(wanted, limit=min(wanted.limit, MAX_MEMBERS_OF_SESSION))


def note_members_read(state: State, caller: Caller) -> None:
    """Count a page that was read; the first one beyond those of an hour is an event."""
    if caller.session_id is None:
        return
    if state.rate_limiter.is_first_beyond(_PAGES_AN_HOUR, "member-pages", str(caller.user_id)):
        with state.resources.unit_of_work() as uow:
            record_hourly(uow, caller.user_id, EventType.MEMBERS_READ, pages=MAX_PAGES_AN_HOUR)
