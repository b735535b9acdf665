"""The access that each route declares: which credentials its callers need.

Each kind of access checks a request, counts the call and describes itself for the OpenAPI document.
A test fails for a route that declares none, and for a route that answers without the credentials
that it declares.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any

from fastapi import Depends, Request

from api.auth.csrf import SAFE_METHODS, require_csrf
from api.auth.page_sessions import find_page_session
from api.browsers import SESSION, client_address
from api.limits.bulkheads import AUTHENTICATION
from api.limits.rate_limits import RateLimitName, rate_key_of_address, rate_key_of_caller
from api.middleware.body_limits import body_of
from api.state import state_of
from core.errors import DomainError, Kind, access, mailing
from core.errors.catalogue import ErrorType
from core.scopes import GRANTABLE, Scope
from core.secret_form import ACCESS_TOKEN
from services import event_origins
from services.access import api_keys, sessions
from services.access.caller import Caller, require_scope
from services.oauth import grants
from services.subscriptions.members import traces


def identify_and_count(
    request: Request,
    stranger: RateLimitName | None = RateLimitName.ANONYMOUS,
    *,
    csrf_token: object = None,
    recent: bool = False,
) -> Caller | None:
    """``identify`` the caller and count the call; raises ``rate.limited`` too.

    A call with bad credentials counts against its address, so that guessing is bounded.
    """
    try:
        caller = identify(request, csrf_token, recent=recent)
    except DomainError as error:
        if error.kind is Kind.UNAUTHENTICATED:
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
        key = rate_key_of_address(client_address(request))
        state_of(request).rate_limiter.count(request.scope, rate, key)


def count_trace(request: Request, token: str) -> bool:
    """Count a call against the person of its trace id; ``False`` for a token that is none.

    Not against the address: a mail provider sends many people's one-click requests from a few.
    """
    state = state_of(request)
    try:
        trace = traces.read_trace_id(state.resources.keyring, token)
    except DomainError:
        return False
    # Apart from the person's own calls: others may have the mail, forwarded, and its trace id.
    state.rate_limiter.count(request.scope, RateLimitName.DEFAULT, f"trace-{trace.user_id}")
    return True


def identify(request: Request, csrf_token: object = None, *, recent: bool = False) -> Caller | None:
    """The caller of the credentials that were sent, ``None`` without any; raises for bad ones.

    With a key or token, a session's cookie only must not be another person's. ``csrf_token``: the
    field of a form, if the request is one. ``recent``: see ``api_keys.authenticate``.
    """
    state = state_of(request)
    database, keyring = state.resources.database, state.resources.keyring
    sent = set(request.headers.getlist(state.resources.settings.api_key_header))
    for header in request.headers.getlist("authorization"):
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise access.AUTH_SCHEME_UNKNOWN()
        sent.add(token.strip())
    if len(sent) > 1:
        raise access.AUTH_CREDENTIALS_DISAGREE()
    if not sent:
        cookie = state.cookies.read(request, SESSION)
        if not cookie:
            return None
        everyone = state.resources.settings.require_second_factor
        caller = sessions.authenticate(database, keyring, cookie, everyone_needs_factor=everyone)
        if request.method not in SAFE_METHODS:
            require_csrf(request, state, cookie, csrf_token)
        return caller
    [secret] = sent
    if secret.startswith(ACCESS_TOKEN.prefix):
        caller = grants.authenticate(database, keyring, secret)
    else:
        uses = state.used_keys
        caller = api_keys.authenticate(database, uses, keyring, secret, recent=recent)
    # Browsers go on sending the cookie of a session that has ended, which is none here.
    member = find_page_session(request, state)
    if member is not None and member.user_id != caller.user_id:
        raise access.AUTH_CREDENTIALS_DISAGREE()
    return caller


# The result of a request's checks before its body was read.
_PASSED = "pressroom.passed"

# OpenAPI's security requirements: each maps a scheme to the scopes that the scheme needs.
Security = list[dict[str, list[str]]]


@dataclass(frozen=True, eq=False)
class Access:
    """A route's dependency; its value is the caller, or ``None`` when the request has none.

    Attributes:
        credential: a sentence for the OpenAPI document: which credential is needed.
        check: finds the caller and counts the call, which blocks for the database; ``None``: the
            route does both (``actors``).
        stranger: the limit by address for calls without credentials; ``None``: no limit.
        public: whether credentials are ignored.
        or_trace: whether a trace id may stand for credentials.
        deferred: whether the value is a function that runs the check, for a handler that calls
            it in its own thread, and whose statement checks the key of the caller: a change of
            threads costs as much as a small statement.
    """

    credential: str
    errors: list[ErrorType]
    security: Security
    check: Callable[[Request], Caller | None] | None
    stranger: RateLimitName | None = RateLimitName.ANONYMOUS
    public: bool = False
    or_trace: bool = False
    deferred: bool = False

    async def __call__(self, request: Request) -> Caller | Callable[[], Caller | None] | None:
        passed: dict[Access, Caller | None] = request.scope.get(_PASSED, {})
        if self in passed:
            return passed[self]
        if self.or_trace:
            body_of(request.scope).check = partial(AUTHENTICATION.run, _trace_or_caller, request)
            return None
        assert self.check is not None
        if self.deferred:
            # A long body waits for the check, which then is not made a second time.
            check = cache(partial(self.check, request))
            body_of(request.scope).check = partial(AUTHENTICATION.run, check)
            return check
        return await self._passed(request, self.check)

    async def pass_before_body(self, request: Request) -> None:
        """Check the caller of a route whose body FastAPI reads before it calls dependencies."""
        if self.check is not None and not self.deferred:
            caller = await self._passed(request, self.check)
            request.scope.setdefault(_PASSED, {})[self] = caller

    async def pass_before_refusal(self, request: Request) -> None:
        """Check the credentials and count the call, so that refused calls are rate-limited too."""
        if self.check is not None:
            await self._passed(request, self.check)
        elif self.or_trace:
            await AUTHENTICATION.run(_count_trace_or_caller, request)

    async def _passed(
        self, request: Request, check: Callable[[Request], Caller | None]
    ) -> Caller | None:
        if self.public:
            limits = state_of(request).rate_limiter
            if self.stranger is None or not limits.counts(self.stranger):
                return None
        caller = await AUTHENTICATION.run(check, request)
        if caller is not None:
            body_of(request.scope).owner_id = caller.user_id
        return caller


def _trace_or_caller(request: Request) -> None:
    """Refuse a body that is longer than a trace id needs, when nothing else says who sends it."""
    trace = request.query_params.get("trace_id")
    if trace is not None:
        traces.read_trace_id(state_of(request).resources.keyring, trace)
    elif identify_and_count(request) is None:
        raise access.AUTH_CREDENTIALS_OR_TRACE_MISSING()


def _count_trace_or_caller(request: Request) -> None:
    """Count the call against the rate limit. Ignore a trace id in the body."""
    trace = request.query_params.get("trace_id")
    if trace is None or not count_trace(request, trace):
        identify_and_count(request)


def _identified(request: Request, *, recent: bool = False) -> Caller:
    caller = identify_and_count(request, recent=recent)
    if caller is None:
        raise access.AUTH_CREDENTIALS_MISSING()
    return caller


def _unrestricted(request: Request) -> Caller:
    caller = _identified(request)
    if not caller.unrestricted:
        raise access.AUTH_RESTRICTED_CREDENTIAL()
    return caller


def _own_schemes(*scopes: Scope) -> Security:
    return [{name: [scope.value for scope in scopes]} for name in ("bearer", "apiKey", "session")]


def _every_scheme(*scopes: Scope) -> Security:
    return [*_own_schemes(*scopes), {"oauth2": [scope.value for scope in scopes]}]


def _public(stranger: RateLimitName | None, *, by_trace: bool = False) -> Any:
    """Ignore credentials; with ``by_trace``, count calls against their trace id's person."""

    def count(request: Request) -> None:
        trace = request.query_params.get("trace_id") if by_trace else None
        if trace is None or not count_trace(request, trace):
            count_anonymous(request, stranger)

    return Depends(Access("", [], [], count, stranger, public=True))


_MISSING_OR_INVALID = [
    access.AUTH_CREDENTIALS_MISSING,
    access.AUTH_INVALID_API_KEY,
    access.AUTH_SECOND_FACTOR,
]


def _any_credential(sentence: str) -> Any:
    return Depends(Access(sentence, _MISSING_OR_INVALID, _every_scheme(), _identified))


PUBLIC = _public(RateLimitName.ANONYMOUS)
# For routes that a few addresses call for many people (a mail provider's image proxy, a CDN, a
# payment provider), and for routes whose requests carry a secret or a signature.
UNLIMITED = _public(None)
# For routes where a caller could guess passwords, or could make Pressroom mail other people.
LOGIN = _public(RateLimitName.LOGIN)
BY_LINK = _public(RateLimitName.ANONYMOUS, by_trace=True)
OPTIONAL = Depends(
    Access(
        "Credential: none needed; any is taken.",
        [access.AUTH_INVALID_API_KEY, access.AUTH_SECOND_FACTOR],
        [{}, *_every_scheme()],
        partial(identify_and_count, stranger=RateLimitName.LOGIN),
        RateLimitName.LOGIN,
    )
)
# For routes whose scope only the service can check, the sentence names it.
ANY_CALLER = _any_credential("Scope: any credential.")
OF_JOB_KIND = _any_credential("Scope: that of the job's kind, such as `attachment`.")
OF_EXPORT_KIND = _any_credential(
    "Scope: `subscription.read` for members, `delivery` for the roster."
)
OF_EVENT_TYPES = _any_credential(
    "Scope: those of the events' types; those of keys and grants need a session or an unrestricted "
    "key."
)
# A credential that may create and revoke others.
UNRESTRICTED = Depends(
    Access(
        "Credential: a session, or an API key without restriction to scopes.",
        [*_MISSING_OR_INVALID, access.AUTH_RESTRICTED_CREDENTIAL],
        _own_schemes(),
        _unrestricted,
    )
)


@cache
def requires_scope(scope: Scope, *, deferred: bool = False) -> Any:

    def authorised(request: Request) -> Caller:
        caller = _identified(request, recent=deferred)
        require_scope(caller, scope)
        return caller

    insufficient = access.AUTH_INSUFFICIENT_SCOPE.filled(scope=scope)
    # Some scopes no person grants to a program, so no OAuth token has them.
    security = _every_scheme(scope) if scope in GRANTABLE else _own_schemes(scope)
    refused = [*_MISSING_OR_INVALID, insufficient]
    sentence = f"Scope: `{scope}`."
    return Depends(Access(sentence, refused, security, authorised, deferred=deferred))


@cache
def requires_scope_or_trace(scope: Scope) -> Any:
    """Take a trace id, or a credential with the scope; ``actors`` checks which was sent."""
    refused = [
        access.AUTH_CREDENTIALS_OR_TRACE_MISSING,
        access.AUTH_INVALID_API_KEY,
        access.AUTH_SECOND_FACTOR,
        mailing.TRACE_INVALID,
        access.AUTH_INSUFFICIENT_SCOPE.filled(scope=scope),
    ]
    sentence = f"Credential: a trace id, or a login. Scope: `{scope}`."
    security = [{}, *_every_scheme(scope)]
    return Depends(Access(sentence, refused, security, check=None, or_trace=True))


# The callers of routes, by the credential that they need.
AnyCaller = Annotated[Caller, ANY_CALLER]
UnrestrictedCaller = Annotated[Caller, UNRESTRICTED]
ListReader = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_READ)]
ListEditor = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_FULL)]
CreditReader = Annotated[Caller, requires_scope(Scope.CREDIT_READ)]
CreditEditor = Annotated[Caller, requires_scope(Scope.CREDIT_FULL)]
WebhookKeeper = Annotated[Caller, requires_scope(Scope.WEBHOOK)]
# For a handler that calls it first thing in the thread that it works in. The caller's key may have
# ended within the last minute: the handler's statement checks it.
AuthoriseSpender = Annotated[Callable[[], Caller], requires_scope(Scope.CREDIT_FULL, deferred=True)]
