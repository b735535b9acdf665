"""Identifies the caller of a request, and counts the request against the rate limits."""

from fastapi import Request

from api.auth.chosen_account import name_account, read_account_id
from api.auth.csrf import SAFE_METHODS, require_csrf
from api.auth.page_sessions import find_page_session
from api.client_details import client_address
from api.cookies import SESSION_COOKIE
from api.limits.rate_limits import RateLimitName, build_address_rate_key, build_caller_rate_key
from api.middleware.admission import CACHED_CALLER_KEY, split_authorization
from api.state import state_of
from core.errors import DomainError, access, teams
from core.ids import AccountId
from core.secret_form import ACCESS_TOKEN
from services import event_origins
from services.access import api_keys, sessions
from services.access.caller import Caller
from services.oauth import grants
from services.subscriptions.members import traces


def identify_and_count(
    request: Request,
    stranger: RateLimitName | None = RateLimitName.ANONYMOUS,
    *,
    csrf_token: object = None,
    about_person: bool = False,
) -> Caller | None:
    """Return the caller of a request, or ``None`` for a request without credentials.

    Requests ``about_person`` act in the person's own account, whatever account they name. Refused
    requests count against the rate limit of the IP address, so that attackers can't guess
    credentials or ids of accounts quickly.
    """
    try:
        caller = identify_caller(request, csrf_token, about_person=about_person)
    except DomainError:
        count_anonymous(request, stranger)
        raise
    if caller is None:
        count_anonymous(request, stranger)
    else:
        event_origins.current_origin().credential = caller.credential
        rates = state_of(request).rate_limiter
        rates.count(request.scope, RateLimitName.DEFAULT, build_caller_rate_key(caller))
    return caller


def identify_cached_caller(request: Request) -> Caller | None:
    """Identify the caller by a cached API key, and count the request against the rate limit.

    This function never waits for the database or Redis, so it may run on the event loop. If the
    database or Redis is needed, this function returns ``None``, and ``identify_and_count`` must
    identify the caller.
    """
    state = state_of(request)
    try:
        secrets = _read_secrets(request)
        account_id = read_account_id(request)
    except DomainError:
        return None
    # A cookie can contain a session, which the database must check.
    if len(secrets) != 1 or "cookie" in request.headers:
        return None
    [secret] = secrets
    caller: Caller | None
    known_secret, caller = request.scope.get(CACHED_CALLER_KEY, (None, None))
    if known_secret != secret:
        caller = api_keys.find_cached_caller(state.used_keys, state.resources.keyring, secret)
    if caller is None or account_id not in (None, caller.account_id):
        return None
    name_account(request, caller)
    # Store the caller's credential before checking the rate limit, so that the request log of the
    # API key also contains the requests that exceed the limit.
    event_origins.current_origin().credential = caller.credential
    rate_key = build_caller_rate_key(caller)
    if not state.rate_limiter.count_reserved(request.scope, RateLimitName.DEFAULT, rate_key):
        return None
    return caller


def identify_caller(
    request: Request, csrf_token: object = None, *, about_person: bool = False
) -> Caller | None:
    """Return the caller of a request, or ``None`` for a request without credentials.

    If a request contains a session cookie and an API key or token, the session's person must be in
    the team of the credential's account.
    """
    account_id = None if about_person else read_account_id(request)
    caller = _identify_in_account(request, account_id, csrf_token)
    if caller is not None:
        name_account(request, caller)
    return caller


def _identify_in_account(
    request: Request, account_id: AccountId | None, csrf_token: object
) -> Caller | None:
    state = state_of(request)
    database = state.resources.database
    keyring = state.resources.keyring
    secrets = _read_secrets(request)
    if len(secrets) > 1:
        raise access.AUTH_CREDENTIALS_DISAGREE()
    if not secrets:
        cookie = state.cookies.read(request, SESSION_COOKIE)
        if not cookie:
            return None
        caller = sessions.authenticate_session(
            database,
            keyring,
            cookie,
            everyone_needs_factor=state.resources.settings.require_second_factor,
            account_id=account_id,
        )
        if request.method not in SAFE_METHODS:
            require_csrf(request, state, cookie, csrf_token)
        return caller
    [secret] = secrets
    if secret.startswith(ACCESS_TOKEN.prefix):
        caller = grants.authenticate_token(database, keyring, secret)
    else:
        caller = api_keys.authenticate_key(database, state.used_keys, keyring, secret)
    if account_id not in (None, caller.account_id):
        raise teams.ACCOUNT_MISMATCH()
    try:
        find_page_session(request, state, caller.account_id)
    except DomainError:
        raise access.AUTH_CREDENTIALS_DISAGREE() from None
    return caller


def _read_secrets(request: Request) -> set[str]:
    secrets = set(request.headers.getlist(state_of(request).resources.settings.api_key_header))
    for header in request.headers.getlist("authorization"):
        scheme, token = split_authorization(header)
        if scheme != "bearer" or not token:
            raise access.AUTH_SCHEME_UNKNOWN()
        secrets.add(token)
    return secrets


def count_anonymous(request: Request, rate: RateLimitName | None) -> None:
    if rate is not None:
        key = build_address_rate_key(client_address(request))
        state_of(request).rate_limiter.count(request.scope, rate, key)


def count_trace(request: Request, token: str) -> bool:
    """Count a request against the person's rate limit, or return ``False`` for an invalid trace id.

    Requests with a trace id aren't counted per IP address, because mail providers send one-click
    requests of many people from a few addresses.
    """
    state = state_of(request)
    try:
        trace = traces.read_trace_id(state.resources.keyring, token)
    except DomainError:
        return False
    # Count trace ids separately from credentials, so that the recipients of a forwarded mail can't
    # use up a person's rate limit.
    state.rate_limiter.count(request.scope, RateLimitName.DEFAULT, f"trace-{trace.user_id}")
    return True
