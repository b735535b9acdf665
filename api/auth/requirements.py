"""The access that each route declares: which credentials its callers need.

Each route declares exactly one ``Access``. A route checks the credentials of its caller before it
reads the request body, so that strangers can't fill the memory that is reserved for bodies.
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

# A body beyond this needs credentials, or a trace id in the query.
MAX_UNCHECKED_BODY_BYTES = 16 * 1024

_CALLER = "pressroom.caller"


@dataclass(frozen=True, eq=False)
class Access(ABC):
    """The requirement of one route on its callers.

    Attributes:
        docs: what the OpenAPI document says about it.
        stranger: the rate limit for calls without credentials, if there is a limit.
    """

    docs: AccessDocs = field(default_factory=AccessDocs)
    stranger: RateLimitName | None = RateLimitName.ANONYMOUS

    async def __call__(self, request: Request) -> Caller | None:
        """Return the caller for a handler: the route has authorised the request before."""
        caller: Caller | None = request.scope[_CALLER]
        return caller

    async def admit(self, request: Request) -> None:
        """Authorise the request, and store its caller for the handler.

        The memory for request bodies is limited per caller, so the body gets the caller's id too.
        """
        caller = await self.authorise(request)
        request.scope[_CALLER] = caller
        if caller is not None:
            body_of(request.scope).owner_id = caller.user_id

    @abstractmethod
    async def authorise(self, request: Request) -> Caller | None:
        """Return the caller, and count the call; raises the errors of ``docs``."""


class PublicAccess(Access):
    """Ignores credentials."""

    async def authorise(self, request: Request) -> None:
        if self.stranger is not None and state_of(request).rate_limiter.counts(self.stranger):
            await AUTHENTICATION.run(self._count, request)

    def _count(self, request: Request) -> None:
        count_anonymous(request, self.stranger)


class LinkAccess(PublicAccess):
    """Ignores credentials, and counts calls against the person of their trace id."""

    def _count(self, request: Request) -> None:
        trace_id = request.query_params.get("trace_id")
        if trace_id is None or not count_trace(request, trace_id):
            count_anonymous(request, self.stranger)


@dataclass(frozen=True, eq=False, kw_only=True)
class CallerAccess(Access):
    """Needs credentials.

    Attributes:
        check: finds the caller and counts the call. It queries the database, so it runs in a
            thread.
    """

    check: Callable[[Request], Caller | None]

    async def authorise(self, request: Request) -> Caller | None:
        return await AUTHENTICATION.run(self.check, request)


class TraceAccess(Access):
    """Needs credentials or a trace id, which may be in the body.

    The handler checks the credentials or the trace id after it has read the body. A body that is
    longer than a trace id needs is read only after a check.
    """

    async def authorise(self, request: Request) -> None:
        if not await body_of(request.scope).is_within(MAX_UNCHECKED_BODY_BYTES):
            await AUTHENTICATION.run(_check_trace_or_caller, request)

    async def count_refusal(self, request: Request) -> None:
        """Count a call that is refused before its handler counts it."""
        await AUTHENTICATION.run(_count_trace_or_caller, request)


def _check_trace_or_caller(request: Request) -> None:
    trace_id = request.query_params.get("trace_id")
    if trace_id is not None:
        traces.read_trace_id(state_of(request).resources.keyring, trace_id)
    elif identify_and_count(request) is None:
        raise access.AUTH_CREDENTIALS_OR_TRACE_MISSING()


def _count_trace_or_caller(request: Request) -> None:
    """Count the call. A trace id in the body is ignored, because the body hasn't been read."""
    trace_id = request.query_params.get("trace_id")
    if trace_id is None or not count_trace(request, trace_id):
        identify_and_count(request)


@cache
def requires_scope(scope: Scope, *, recent: bool = False) -> Any:
    """Depend on a caller with the scope.

    Args:
        recent: whether the handler's own statement checks the caller's key, because the key may
            have ended within the last minute.
    """

    def check(request: Request) -> Caller:
        caller = _require_caller(request, recent=recent)
        require_scope(caller, scope)
        return caller

    return Depends(CallerAccess(describe_scope(scope), check=check))


@cache
def requires_scope_or_trace(scope: Scope) -> Any:
    """Depend on a trace id, or on a credential with the scope."""
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
# For routes that a few addresses call for many people (a mail provider's image proxy, a CDN, a
# payment provider), and for routes whose requests carry a secret or a signature.
UNLIMITED = Depends(PublicAccess(stranger=None))
# For routes where a caller could guess passwords, or could make Pressroom mail other people.
LOGIN = Depends(PublicAccess(stranger=RateLimitName.LOGIN))
BY_LINK = Depends(LinkAccess())
OPTIONAL = Depends(
    CallerAccess(
        describe_optional_credential(),
        RateLimitName.LOGIN,
        check=partial(identify_and_count, stranger=RateLimitName.LOGIN),
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
    CallerAccess(describe_unrestricted_credential(), check=_require_unrestricted)
)

# The callers of routes, by the credential that they need.
AnyCaller = Annotated[Caller, ANY_CALLER]
UnrestrictedCaller = Annotated[Caller, UNRESTRICTED]
ListReader = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_READ)]
ListEditor = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_FULL)]
CreditReader = Annotated[Caller, requires_scope(Scope.CREDIT_READ)]
CreditEditor = Annotated[Caller, requires_scope(Scope.CREDIT_FULL)]
WebhookKeeper = Annotated[Caller, requires_scope(Scope.WEBHOOK)]
# Only for handlers whose statement checks the caller's key.
CreditSpender = Annotated[Caller, requires_scope(Scope.CREDIT_FULL, recent=True)]
