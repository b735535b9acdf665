"""Defines access rules, which state the credentials that a route or page requires.

Each route declares exactly one access rule. Credentials are checked before the request body is
read, so that anonymous callers can't fill the memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, Literal

from fastapi import Depends, Request

from api.auth.access_docs import (
    AccessDocs,
    describe_any_credential,
    describe_delivery_scope,
    describe_optional_credential,
    describe_scope,
    describe_scope_or_trace,
    describe_unrestricted_credential,
)
from api.auth.csrf import CSRF_FIELD, require_csrf
from api.auth.identification import (
    count_anonymous,
    count_trace,
    identify_and_count,
    identify_cached_caller,
)
from api.auth.page_sessions import (
    PageSession,
    find_page_session,
    require_member,
    require_recent_session,
)
from api.bodies.page_forms import read_page_form
from api.limits.bulkheads import AUTHENTICATION
from api.limits.rate_limits import RateLimitName
from api.middleware.body_limits import body_of
from api.state import state_of
from core.errors import access
from core.permissions import Permission
from core.scopes import Scope
from services.access.caller import Caller, require_permission, require_scope
from services.subscriptions.members import traces

# The maximum size of a request body that is read before credentials or a trace id are checked.
MAX_UNCHECKED_BODY_BYTES = 16 * 1024

# Marks a route that needs the permission of a record's kind, which the service checks.
KIND_PERMISSION: Literal["kind"] = "kind"
# The permission that a caller's role must have. A route needs no permission (``None``) if it is
# about the caller as a person, or if only operators or API keys can use it.
RoutePermission = Permission | Literal["kind"] | None

# The key of the authorised caller in the ASGI scope of a request.
_CALLER_KEY = "pressroom.caller"


def get_admitted_session(request: Request) -> PageSession | None:
    """Return the session with which the access rule of a page admitted the request."""
    session: PageSession | None = request.scope.get(_CALLER_KEY)
    return session


@dataclass(frozen=True, eq=False)
class Access(ABC):
    """The access rule of a route.

    ``stranger`` is the rate limit for requests without credentials, or ``None`` for no rate limit.
    """

    docs: AccessDocs = field(default_factory=AccessDocs)
    stranger: RateLimitName | None = RateLimitName.ANONYMOUS
    permission: RoutePermission = field(kw_only=True)

    async def __call__(self, request: Request) -> Any:
        return request.scope[_CALLER_KEY]

    async def admit(self, request: Request) -> None:
        """Store the caller in the request, and the account with the body, so that the body's size
        counts against the account's memory budget.
        """
        admitted = await self.authorise(request)
        request.scope[_CALLER_KEY] = admitted
        if admitted is None:
            return
        body_of(request.scope).account_id = admitted.account_id
        if isinstance(self.permission, Permission):
            caller = admitted.caller if isinstance(admitted, PageSession) else admitted
            require_permission(caller, self.permission)

    @abstractmethod
    async def authorise(self, request: Request) -> Caller | PageSession | None:
        """Authenticate the caller, and count the request against a rate limit."""


@dataclass(frozen=True, eq=False)
class PublicAccess(Access):
    """An access rule that ignores credentials."""

    permission: None = field(default=None, init=False)

    async def authorise(self, request: Request) -> None:
        if self.stranger is not None and state_of(request).rate_limiter.has_limit(self.stranger):
            await AUTHENTICATION.run(self._count, request)

    def _count(self, request: Request) -> None:
        count_anonymous(request, self.stranger)


class LinkAccess(PublicAccess):
    """An access rule for links in mails, which ignores credentials. A request with a trace id in
    the query counts against the recipient's rate limit.
    """

    def _count(self, request: Request) -> None:
        trace_id = request.query_params.get("trace_id")
        if trace_id is None or not count_trace(request, trace_id):
            count_anonymous(request, self.stranger)


@dataclass(frozen=True, eq=False, kw_only=True)
class CallerAccess(Access):
    """An access rule that checks credentials.

    ``check`` runs in a thread, because it queries the database.
    """

    check: Callable[[Request], Caller | None]

    async def authorise(self, request: Request) -> Caller | None:
        return await AUTHENTICATION.run(self.check, request)


@dataclass(frozen=True, eq=False, kw_only=True)
class CachedKeyAccess(CallerAccess):
    """An access rule that doesn't check an API key again if the key was checked recently.

    The route's SQL statement must check that the API key isn't revoked.
    """

    scope: Scope

    async def authorise(self, request: Request) -> Caller | None:
        # Optimization: accepting cached API keys on the event loop (decision 17).
        caller = identify_cached_caller(request)
        if caller is None:
            return await super().authorise(request)
        require_scope(caller, self.scope)
        return caller


@dataclass(frozen=True, eq=False, kw_only=True)
class PageAccess(Access):
    """An access rule for pages, which accept only the session cookie.

    ``check`` gets ``None`` if nobody is logged in.
    """

    check: Callable[[PageSession | None], PageSession | None] = require_member
    is_form: bool = False
    is_recent: bool = False

    async def admit(self, request: Request) -> None:
        await super().admit(request)
        session: PageSession | None = request.scope[_CALLER_KEY]
        if session is None:
            return
        # Check the CSRF token before the time of the login, so that a page of another site can't
        # lead people to the login page.
        if self.is_form:
            form = await read_page_form(request)
            require_csrf(request, state_of(request), session.cookie, form.get(CSRF_FIELD))
        if self.is_recent:
            await AUTHENTICATION.run(_require_recent_login, request, session)

    async def authorise(self, request: Request) -> PageSession | None:
        return await AUTHENTICATION.run(self._find_session, request)

    def _find_session(self, request: Request) -> PageSession | None:
        count_anonymous(request, self.stranger)
        return self.check(find_page_session(request, state_of(request)))


def _require_recent_login(request: Request, session: PageSession) -> None:
    with state_of(request).resources.unit_of_work() as uow:
        require_recent_session(uow, session)


@dataclass(frozen=True, eq=False)
class TraceAccess(Access):
    """An access rule for people's own subscriptions. It requires credentials or a trace id.

    A body of at most ``MAX_UNCHECKED_BODY_BYTES`` is read before the caller is checked, because the
    body may contain the trace id.
    """

    permission: None = field(default=None, init=False)

    async def authorise(self, request: Request) -> None:
        if not await body_of(request.scope).is_within(MAX_UNCHECKED_BODY_BYTES):
            await AUTHENTICATION.run(_check_trace_or_caller, request)

    async def count_refusal(self, request: Request) -> None:
        """Count a request that is refused because of unknown query parameters."""
        await AUTHENTICATION.run(_count_trace_or_caller, request)


def _check_trace_or_caller(request: Request) -> None:
    trace_id = request.query_params.get("trace_id")
    if trace_id is not None:
        traces.read_trace_id(state_of(request).resources.keyring, trace_id)
    elif identify_and_count(request, about_person=True) is None:
        raise access.AUTH_CREDENTIALS_OR_TRACE_MISSING()


def _count_trace_or_caller(request: Request) -> None:
    """Ignore a trace id in the body, because rate limits are checked before the body is read."""
    trace_id = request.query_params.get("trace_id")
    if trace_id is None or not count_trace(request, trace_id):
        identify_and_count(request, about_person=True)


@cache
def requires_scope(scope: Scope, permission: Permission | None) -> Any:
    check = partial(_require_scope, scope)
    return Depends(CallerAccess(describe_scope(scope), check=check, permission=permission))


@cache
def requires_cached_scope(scope: Scope, permission: Permission) -> Any:
    check = partial(_require_scope, scope)
    docs = describe_scope(scope)
    return Depends(CachedKeyAccess(docs, check=check, scope=scope, permission=permission))


@cache
def requires_scope_or_trace(scope: Scope) -> Any:
    return Depends(TraceAccess(describe_scope_or_trace(scope)))


def _require_scope(scope: Scope, request: Request) -> Caller:
    caller = _require_caller(request)
    require_scope(caller, scope)
    return caller


def _require_caller(request: Request, *, about_person: bool = False) -> Caller:
    caller = identify_and_count(request, about_person=about_person)
    if caller is None:
        raise access.AUTH_CREDENTIALS_MISSING()
    return caller


def _require_unrestricted(request: Request, *, about_person: bool) -> Caller:
    caller = _require_caller(request, about_person=about_person)
    if not caller.unrestricted:
        raise access.AUTH_RESTRICTED_CREDENTIAL()
    return caller


def _any_credential(
    sentence: str, permission: RoutePermission, *, about_person: bool = False
) -> Any:
    docs = describe_any_credential(sentence)
    check = partial(_require_caller, about_person=about_person)
    return Depends(CallerAccess(docs, check=check, permission=permission))


def _unrestricted(permission: Permission | None) -> Any:
    check = partial(_require_unrestricted, about_person=permission is None)
    docs = describe_unrestricted_credential()
    return Depends(CallerAccess(docs, check=check, permission=permission))


PUBLIC = Depends(PublicAccess())
# ``UNLIMITED`` is for routes that require a signed URL, and for routes whose callers act for many
# people, such as payment providers and image proxies.
UNLIMITED = Depends(PublicAccess(stranger=None))
# ``LOGIN`` is for routes with which callers could guess passwords or send mails to other people.
LOGIN = Depends(PublicAccess(stranger=RateLimitName.LOGIN))
MAIL_LINK = Depends(LinkAccess())
OPTIONAL = Depends(
    CallerAccess(
        describe_optional_credential(),
        RateLimitName.LOGIN,
        check=partial(identify_and_count, stranger=RateLimitName.LOGIN),
        permission=Permission.MONEY,
    )
)
# Access rules that accept credentials with any scope. The required scope depends on the requested
# record, so the service checks the scope after finding the record.
_EVERY_CREDENTIAL = "Scope: none. Every credential is accepted."
ANY_CALLER = _any_credential(_EVERY_CREDENTIAL, None)
PERSON = _any_credential(_EVERY_CREDENTIAL, None, about_person=True)
JOB_KIND_SCOPE = _any_credential(
    "Scope: the scope of the job's kind, such as `attachment`.", KIND_PERMISSION
)
EXPORT_KIND_SCOPE = _any_credential(
    "Scope: `subscription.read` for members, `delivery` for delivery exports.", KIND_PERMISSION
)
# Only API keys have the scope ``delivery``.
DELIVERY_SCOPE = Depends(
    CallerAccess(describe_delivery_scope(), check=_require_caller, permission=None)
)
EVENT_TYPE_SCOPES = _any_credential(
    "Scope: the scopes of the event types. Event types of keys and grants require a session or an "
    "unrestricted key.",
    KIND_PERMISSION,
)

# ``OptionalSession`` is for pages that people may open without a login, or that check the session
# only after the rest of the request. ``None`` means that nobody is logged in.
OptionalSession = Annotated[
    PageSession | None, Depends(PageAccess(check=lambda session: session, permission=None))
]
OptionalSessionForm = Annotated[
    PageSession | None,
    Depends(PageAccess(check=lambda session: session, is_form=True, permission=None)),
]

# The types of the handler parameters that receive the caller.
AnyCaller = Annotated[Caller, ANY_CALLER]
# A handler with a ``PersonalCaller`` parameter ignores the account that the request names.
PersonalCaller = Annotated[Caller, PERSON]
# Creating or revoking credentials requires credentials that aren't restricted to scopes.
UnrestrictedPerson = Annotated[Caller, _unrestricted(None)]
KeyKeeper = Annotated[Caller, _unrestricted(Permission.ACCESS)]
GrantKeeper = Annotated[Caller, _unrestricted(Permission.ANY)]
ListReader = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_READ, Permission.FIGURES)]
MemberReader = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_READ, Permission.MEMBERS)]
ListEditor = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_FULL, Permission.EDIT)]
ListCloser = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_FULL, Permission.CLOSE)]
CreditReader = Annotated[Caller, requires_scope(Scope.CREDIT_READ, Permission.MONEY_READ)]
CreditEditor = Annotated[Caller, requires_scope(Scope.CREDIT_FULL, Permission.MONEY)]
WebhookKeeper = Annotated[Caller, requires_scope(Scope.WEBHOOK, Permission.ACCESS)]
SenderKeeper = Annotated[Caller, requires_scope(Scope.SENDER, Permission.ACCESS)]
# A handler with a ``CreditSpender`` parameter must check in its SQL statement that the API key
# isn't revoked.
CreditSpender = Annotated[Caller, requires_cached_scope(Scope.CREDIT_FULL, Permission.MONEY)]
