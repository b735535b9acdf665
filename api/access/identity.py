"""The caller of a request, identified by its credentials, and the rate limits of its calls."""

from fastapi import Request

from api.access import browsers
from api.access.page_sessions import page_session
from api.limits.rate_limits import RateLimitName, rate_key_of_address, rate_key_of_caller
from api.state import state_of
from core.errors import DomainError, Kind
from core.refusals.access import AUTH_CREDENTIALS_DISAGREE, AUTH_SCHEME_UNKNOWN
from core.secret_form import ACCESS_TOKEN
from services.access import api_keys, sessions
from services.access.caller import Caller
from services.events import event_origins
from services.mailing.subscriptions import trace_ids
from services.oauth import tokens


def identify_and_count(
    request: Request,
    stranger: RateLimitName | None = RateLimitName.ANONYMOUS,
    *,
    csrf_token: object = None,
) -> Caller | None:
    """``identify`` the caller and count the call; raises ``rate.limited`` too.

    A call with bad credentials counts against its address, so that guessing is bounded.
    """
    try:
        caller = identify(request, csrf_token)
    except DomainError as refusal:
        if refusal.kind is Kind.UNAUTHENTICATED:
            count_anonymous(request, stranger)
        raise
    if caller is None:
        count_anonymous(request, stranger)
    else:
        event_origins.current().credential = caller.credential
        rates = state_of(request).rate_limiter
        rates.count(request.scope, RateLimitName.DEFAULT, rate_key_of_caller(caller))
    return caller


def count_anonymous(request: Request, rate: RateLimitName | None) -> None:
    if rate is not None:
        key = rate_key_of_address(browsers.client_address(request))
        state_of(request).rate_limiter.count(request.scope, rate, key)


def count_trace(request: Request, token: str) -> bool:
    """Count a call against the person of its trace id; ``False`` for a token that is none.

    Not against the address: a mail provider sends many people's one-click requests from a few.
    """
    state = state_of(request)
    try:
        trace = trace_ids.read(state.resources.keyring, token)
    except DomainError:
        return False
    # Apart from the person's own calls: others may have the mail, forwarded, and its trace id.
    state.rate_limiter.count(request.scope, RateLimitName.DEFAULT, f"trace-{trace.user_id}")
    return True


def identify(request: Request, csrf_token: object = None) -> Caller | None:
    """The caller of the credentials that were sent, ``None`` without any; raises for bad ones.

    With a key or token, a session's cookie only must not be another person's. ``csrf_token``: the
    field of a form, if the request is one.
    """
    state = state_of(request)
    database, keyring = state.resources.database, state.resources.keyring
    sent = set(request.headers.getlist(state.resources.settings.api_key_header))
    for header in request.headers.getlist("authorization"):
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AUTH_SCHEME_UNKNOWN()
        sent.add(token.strip())
    if len(sent) > 1:
        raise AUTH_CREDENTIALS_DISAGREE()
    if not sent:
        cookie = browsers.session_cookie(request, state)
        if cookie is None:
            return None
        everyone = state.resources.settings.require_second_factor
        caller = sessions.authenticate(database, keyring, cookie, everyone_needs_factor=everyone)
        if request.method not in browsers.SAFE_METHODS:
            browsers.require_csrf(request, state, cookie, csrf_token)
        return caller
    [secret] = sent
    if secret.startswith(ACCESS_TOKEN.prefix):
        caller = tokens.authenticate(database, keyring, secret)
    else:
        caller = api_keys.authenticate(database, state.last_uses, keyring, secret)
    # Browsers go on sending the cookie of a session that has ended, which is none here.
    member = page_session(request, state)
    if member is not None and member.user_id != caller.user_id:
        raise AUTH_CREDENTIALS_DISAGREE()
    return caller
