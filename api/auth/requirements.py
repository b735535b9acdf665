"""Defines the access rules, which declare the credentials that routes require.

Each route declares exactly one access rule. Routes check credentials before they read the request
body, so that callers without credentials can't fill the memory with bodies.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any

from fastapi import Depends, Request

from api.auth.access_docs import (
    AccessDocs,
    describe_any_credential,
    describe_optional_credential,
    describe_scope,
    describe_scope_or_trace,
    describe_unrestricted_credential,
)
from api.auth.identification import count_anonymous, count_trace, identify_and_count
from api.limits.bulkheads import AUTHENTICATION
from api.limits.rate_limits import RateLimitName
from api.middleware.body_limits import body_of
from api.state import state_of
from core.errors import access
from core.scopes import Scope
from services.access.caller import Caller, require_scope
from services.subscriptions.members import traces

# The maximum size of a request body that is read before credentials or a trace id are checked.
MAX_UNCHECKED_BODY_BYTES = 16 * 1024

# The key under which the ASGI scope contains the authorised caller of a request.
_CALLER_KEY = "pressroom.caller"


@dataclass(frozen=True, eq=False)
class Access(ABC):
    """The access rule of a route.

    Attributes:
        docs: the description of the access rule in the OpenAPI document.
        stranger: the rate limit for requests without credentials, or ``None`` for no rate limit.
    """

    docs: AccessDocs = field(default_factory=AccessDocs)
    stranger: RateLimitName | None = RateLimitName.ANONYMOUS

    async def __call__(self, request: Request) -> Caller | None:
        """Return the caller that ``admit`` has stored, or ``None`` without credentials."""
        caller: Caller | None = request.scope[_CALLER_KEY]
        return caller

    async def admit(self, request: Request) -> None:
        """Authorise the request, and store the caller in the request.

        The caller's user id is stored in ``BoundedBody``, because memory for request bodies is
        limited per user.
        """
        caller = await self.authorise(request)
        request.scope[_CALLER_KEY] = caller
        if caller is not None:
            body_of(request.scope).owner_id = caller.user_id

    @abstractmethod
    async def authorise(self, request: Request) -> Caller | None:
        """Authenticate the caller, count the request against a rate limit, and return the caller.

        Raises the errors that the attribute ``docs`` lists.
        """


class PublicAccess(Access):
    """An access rule that ignores credentials, for public routes."""

    async def authorise(self, request: Request) -> None:
        if self.stranger is not None and state_of(request).rate_limiter.has_limit(self.stranger):
            await AUTHENTICATION.run(self._count, request)

    def _count(self, request: Request) -> None:
        count_anonymous(request, self.stranger)


class LinkAccess(PublicAccess):
    """An access rule that ignores credentials, for pages that people open from links in mails.

    A request with a trace id counts against the rate limit of the person that the trace id
    identifies.
    """

    def _count(self, request: Request) -> None:
        trace_id = request.query_params.get("trace_id")
        if trace_id is None or not count_trace(request, trace_id):
            count_anonymous(request, self.stranger)


@dataclass(frozen=True, eq=False, kw_only=True)
class CallerAccess(Access):
    """An access rule that checks credentials.

    Attributes:
        check: a function that finds the caller and counts the request against a rate limit.
            ``check`` runs in a thread, because ``check`` queries the database.
    """

    check: Callable[[Request], Caller | None]

    async def authorise(self, request: Request) -> Caller | None:
        return await AUTHENTICATION.run(self.check, request)


class TraceAccess(Access):
    """An access rule that requires credentials or a trace id.

    A body of at most ``MAX_UNCHECKED_BODY_BYTES`` is read before any check, because the body may
    contain the trace id. A body above ``MAX_UNCHECKED_BODY_BYTES`` is read only after credentials,
    or a trace id in the query, were checked.
    """

    async def authorise(self, request: Request) -> None:
        if not await body_of(request.scope).is_within(MAX_UNCHECKED_BODY_BYTES):
            await AUTHENTICATION.run(_check_trace_or_caller, request)

    async def count_refusal(self, request: Request) -> None:
        """Count a request against a rate limit if the request is refused before its handler runs.

        The route calls ``count_refusal`` when a request contains unknown query parameters.
        """
        await AUTHENTICATION.run(_count_trace_or_caller, request)


def _check_trace_or_caller(request: Request) -> None:
    trace_id = request.query_params.get("trace_id")
    if trace_id is not None:
        traces.read_trace_id(state_of(request).resources.keyring, trace_id)
    elif identify_and_count(request) is None:
        raise access.AUTH_CREDENTIALS_OR_TRACE_MISSING()


def _count_trace_or_caller(request: Request) -> None:
    """Count the request against the rate limit of the caller or of the trace id's user.

    A trace id in the request body is ignored, because the body hasn't been read yet.
    """
    trace_id = request.query_params.get("trace_id")
    if trace_id is None or not count_trace(request, trace_id):
        identify_and_count(request)


@cache
def requires_scope(scope: Scope, *, recent: bool = False) -> Any:
    """Return a FastAPI dependency that requires a caller whose credentials have the scope.

    Args:
        recent: whether to accept an API key without another check if the API key was checked
            recently. If ``recent`` is true, the handler's own SQL statement must check the API key,
            which may have been revoked in the meantime.
    """

    def check(request: Request) -> Caller:
        caller = _require_caller(request, recent=recent)
        require_scope(caller, scope)
        return caller

    return Depends(CallerAccess(describe_scope(scope), check=check))


@cache
def requires_scope_or_trace(scope: Scope) -> Any:
    """Return a FastAPI dependency that requires a trace id, or credentials with the scope."""
    return Depends(TraceAccess(describe_scope_or_trace(scope)))


def _require_caller(request: Request, *, recent: bool = False) -> Caller:
    caller = identify_and_count(request, recent=recent)
    if caller is None:
        raise access.AUTH_CREDENTIALS_MISSING()
    return caller


def _require_unrestricted(request: Request) -> Caller:
    caller = _require_caller(request)
    if not caller.unrestricted:
        raise access.AUTH_RESTRICTED_CREDENTIAL()
    return caller


def _any_credential(sentence: str) -> Any:
    return Depends(CallerAccess(describe_any_credential(sentence), check=_require_caller))


PUBLIC = Depends(PublicAccess())
# The access rule ``UNLIMITED`` is for routes whose callers act for many people, such as payment
# providers and image proxies. ``UNLIMITED`` is also for routes that require a signed URL.
UNLIMITED = Depends(PublicAccess(stranger=None))
# The access rule ``LOGIN`` is for routes that callers could misuse to guess passwords or to send
# mails to other people.
LOGIN = Depends(PublicAccess(stranger=RateLimitName.LOGIN))
MAIL_LINK = Depends(LinkAccess())
OPTIONAL = Depends(
    CallerAccess(
        describe_optional_credential(),
        RateLimitName.LOGIN,
        check=partial(identify_and_count, stranger=RateLimitName.LOGIN),
    )
)
# Access rules that accept credentials with any scope. The required scope depends on the requested
# record, so only the service that finds the record can check the scope.
ANY_CALLER = _any_credential("Scope: any credential.")
JOB_KIND_SCOPE = _any_credential("Scope: that of the job's kind, such as `attachment`.")
EXPORT_KIND_SCOPE = _any_credential(
    "Scope: `subscription.read` for members, `delivery` for the roster."
)
EVENT_TYPE_SCOPES = _any_credential(
    "Scope: those of the events' types; those of keys and grants need a session or an unrestricted "
    "key."
)
# Only credentials that aren't restricted to scopes may be used to create or revoke credentials.
UNRESTRICTED = Depends(
    CallerAccess(describe_unrestricted_credential(), check=_require_unrestricted)
)

# Types of the handler parameters that receive the caller of the request.
AnyCaller = Annotated[Caller, ANY_CALLER]
UnrestrictedCaller = Annotated[Caller, UNRESTRICTED]
ListReader = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_READ)]
ListEditor = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_FULL)]
CreditReader = Annotated[Caller, requires_scope(Scope.CREDIT_READ)]
CreditEditor = Annotated[Caller, requires_scope(Scope.CREDIT_FULL)]
WebhookKeeper = Annotated[Caller, requires_scope(Scope.WEBHOOK)]
# A handler with a ``CreditSpender`` parameter must check the caller's API key in its own SQL
# statement.
CreditSpender = Annotated[Caller, requires_scope(Scope.CREDIT_FULL, recent=True)]
