"""The caller of a request: found by the credentials, and counted against the rate limits."""

from fastapi import Request

from api.auth.csrf import SAFE_METHODS, require_csrf
from api.auth.page_sessions import find_page_session
from api.client_details import client_address
from api.cookies import SESSION
from api.limits.rate_limits import RateLimitName, rate_key_of_address, rate_key_of_caller
from api.state import state_of
from core.errors import DomainError, Kind, access
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
    recent: bool = False,
) -> Caller | None:
    """Identify the caller, and count the call.

    A call with invalid credentials counts against its address, to limit guessing. Raises
    ``rate.limited`` and the errors of ``identify_caller``.
    """
    try:
        caller = identify_caller(request, csrf_token, recent=recent)
    except DomainError as error:
        if error.kind is Kind.UNAUTHENTICATED:
            count_anonymous(request, stranger)
        raise
    if caller is None:
        count_anonymous(request, stranger)
    else:
        event_origins.current_origin().credential = caller.credential
        rates = state_of(request).rate_limiter
        rates.count(request.scope, RateLimitName.DEFAULT, rate_key_of_caller(caller))
    return caller


def identify_caller(
    request: Request, csrf_token: object = None, *, recent: bool = False
) -> Caller | None:
    """Return the caller whose credentials were sent, and ``None`` if none were sent.

    A key or token may come with a session cookie only if both belong to the same person. Raises
    the errors of invalid credentials.

    Args:
        csrf_token: the field of a form, if the request is one.
        recent: see ``api_keys.authenticate_key``.
    """
    state = state_of(request)
    database = state.resources.database
    keyring = state.resources.keyring
    secrets = set(request.headers.getlist(state.resources.settings.api_key_header))
    for header in request.headers.getlist("authorization"):
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise access.AUTH_SCHEME_UNKNOWN()
        secrets.add(token.strip())
    if len(secrets) > 1:
        raise access.AUTH_CREDENTIALS_DISAGREE()
    if not secrets:
        cookie = state.cookies.read(request, SESSION)
        if not cookie:
            return None
        everyone = state.resources.settings.require_second_factor
        caller = sessions.authenticate_session(
            database, keyring, cookie, everyone_needs_factor=everyone
        )
        if request.method not in SAFE_METHODS:
            require_csrf(request, state, cookie, csrf_token)
        return caller
    [secret] = secrets
    if secret.startswith(ACCESS_TOKEN.prefix):
        caller = grants.authenticate_token(database, keyring, secret)
    else:
        caller = api_keys.authenticate_key(
            database, state.used_keys, keyring, secret, recent=recent
        )
    # Browsers still send the cookie of a session that has ended. It counts as no session here.
    member = find_page_session(request, state)
    if member is not None and member.user_id != caller.user_id:
        raise access.AUTH_CREDENTIALS_DISAGREE()
    return caller


def count_anonymous(request: Request, rate: RateLimitName | None) -> None:
    if rate is not None:
        key = rate_key_of_address(client_address(request))
        state_of(request).rate_limiter.count(request.scope, rate, key)


def count_trace(request: Request, token: str) -> bool:
    """Count a call against the person of its trace id; return ``False`` for an invalid trace id.

    The address doesn't count, because a mail provider sends the one-click requests of many people
    from a few addresses.
    """
    state = state_of(request)
    try:
        trace = traces.read_trace_id(state.resources.keyring, token)
    except DomainError:
        return False
    # The person's own calls are counted separately, because others may have the trace id too: a
    # mail can be forwarded.
    state.rate_limiter.count(request.scope, RateLimitName.DEFAULT, f"trace-{trace.user_id}")
    return True
