"""The access that each route declares: which credentials its callers need.

Each kind of access checks a request, counts the call and describes itself for the OpenAPI document.
A test fails for a route that declares none, and for a route that answers without the credentials
that it declares.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from api.access.identity import count_anonymous, count_trace, identify_and_count
from api.limits.rate_limits import RateLimitName
from api.state import state_of
from core.refusals.access import (
    AUTH_CREDENTIALS_MISSING,
    AUTH_CREDENTIALS_OR_TRACE_MISSING,
    AUTH_INSUFFICIENT_SCOPE,
    AUTH_INVALID_API_KEY,
    AUTH_RESTRICTED_CREDENTIAL,
)
from core.refusals.mailing import TRACE_INVALID
from core.refusals.refusal import Refusal
from core.scopes import Scope
from services.access.caller import Caller, require_scope

# OpenAPI's security requirements: each maps a scheme to the scopes that the scheme needs.
Security = list[dict[str, list[str]]]


@runtime_checkable
class Access(Protocol):
    """A route's dependency; its value is the caller, or ``None`` when the request has none.

    Attributes:
        public: whether credentials are ignored.
        or_trace: whether a trace id may stand for credentials.
    """

    public: ClassVar[bool]
    or_trace: ClassVar[bool]

    @property
    def stranger(self) -> RateLimitName | None:
        """The limit by address for calls without credentials; ``None``: no limit."""

    async def __call__(self, request: Request) -> Caller | None: ...

    def credential(self) -> str:
        """A sentence for the OpenAPI document: which credential is needed."""

    def refusals(self) -> list[Refusal]: ...

    def security(self) -> Security: ...


@dataclass(frozen=True)
class Public:
    """Credentials are ignored. With ``by_trace``, calls count against their trace id's person."""

    stranger: RateLimitName | None = RateLimitName.ANONYMOUS
    by_trace: bool = False
    public: ClassVar[bool] = True
    or_trace: ClassVar[bool] = False

    async def __call__(self, request: Request) -> None:
        if self.stranger and state_of(request).rate_limiter.counts(self.stranger):
            await run_in_threadpool(self._count, request)

    def _count(self, request: Request) -> None:
        trace = request.query_params.get("trace_id") if self.by_trace else None
        if trace is None or not count_trace(request, trace):
            count_anonymous(request, self.stranger)

    def credential(self) -> str:
        return ""

    def refusals(self) -> list[Refusal]:
        return []

    def security(self) -> Security:
        return []


@dataclass(frozen=True)
class OptionalCredential:
    """A caller with any credential, or without one."""

    stranger: RateLimitName | None = RateLimitName.LOGIN
    public: ClassVar[bool] = False
    or_trace: ClassVar[bool] = False

    async def __call__(self, request: Request) -> Caller | None:
        return await run_in_threadpool(identify_and_count, request, self.stranger)

    def credential(self) -> str:
        return "Credential: none needed; any is taken."

    def refusals(self) -> list[Refusal]:
        return [AUTH_INVALID_API_KEY]

    def security(self) -> Security:
        return [{}, *_every_scheme()]


@dataclass(frozen=True)
class AnyCredential:
    """A caller with any credential. ``sentence`` names a scope that only the service can check."""

    sentence: str = "Scope: any credential."
    stranger: ClassVar[RateLimitName | None] = RateLimitName.ANONYMOUS
    public: ClassVar[bool] = False
    or_trace: ClassVar[bool] = False

    async def __call__(self, request: Request) -> Caller:
        return await run_in_threadpool(_identified, request)

    def credential(self) -> str:
        return self.sentence

    def refusals(self) -> list[Refusal]:
        return [AUTH_CREDENTIALS_MISSING, AUTH_INVALID_API_KEY]

    def security(self) -> Security:
        return _every_scheme()


@dataclass(frozen=True)
class ScopedCredential:
    """A caller whose credential has the scope."""

    scope: Scope
    stranger: ClassVar[RateLimitName | None] = RateLimitName.ANONYMOUS
    public: ClassVar[bool] = False
    or_trace: ClassVar[bool] = False

    async def __call__(self, request: Request) -> Caller:
        return await run_in_threadpool(self.authorise, request)

    def authorise(self, request: Request) -> Caller:
        """The caller, whose credential must have the scope; blocks for the database."""
        caller = _identified(request)
        require_scope(caller, self.scope)
        return caller

    def credential(self) -> str:
        return f"Scope: `{self.scope}`."

    def refusals(self) -> list[Refusal]:
        insufficient = AUTH_INSUFFICIENT_SCOPE.filled(scope=self.scope)
        return [AUTH_CREDENTIALS_MISSING, AUTH_INVALID_API_KEY, insufficient]

    def security(self) -> Security:
        # Only the operator grants the scope of deliveries, so no OAuth token has it.
        if self.scope is Scope.DELIVERY:
            return _own_schemes(self.scope)
        return _every_scheme(self.scope)


@dataclass(frozen=True)
class ScopeOrTrace:
    """A person's trace id, or a credential with the scope; ``actors`` checks which was sent."""

    scope: Scope
    stranger: ClassVar[RateLimitName | None] = RateLimitName.ANONYMOUS
    public: ClassVar[bool] = False
    or_trace: ClassVar[bool] = True

    async def __call__(self, request: Request) -> None:
        """Nothing to check here: the route identifies the principal, and counts the call."""

    def credential(self) -> str:
        return f"Credential: a trace id, or a login. Scope: `{self.scope}`."

    def refusals(self) -> list[Refusal]:
        insufficient = AUTH_INSUFFICIENT_SCOPE.filled(scope=self.scope)
        return [
            AUTH_CREDENTIALS_OR_TRACE_MISSING,
            AUTH_INVALID_API_KEY,
            TRACE_INVALID,
            insufficient,
        ]

    def security(self) -> Security:
        return [{}, *_every_scheme(self.scope)]


@dataclass(frozen=True)
class UnrestrictedCredential:
    """A session or an unrestricted API key: a credential that may create and revoke others."""

    stranger: ClassVar[RateLimitName | None] = RateLimitName.ANONYMOUS
    public: ClassVar[bool] = False
    or_trace: ClassVar[bool] = False

    async def __call__(self, request: Request) -> Caller:
        return await run_in_threadpool(self._authorise, request)

    def _authorise(self, request: Request) -> Caller:
        caller = _identified(request)
        if not caller.unrestricted:
            raise AUTH_RESTRICTED_CREDENTIAL()
        return caller

    def credential(self) -> str:
        return "Credential: a session, or an API key without restriction to scopes."

    def refusals(self) -> list[Refusal]:
        return [AUTH_CREDENTIALS_MISSING, AUTH_INVALID_API_KEY, AUTH_RESTRICTED_CREDENTIAL]

    def security(self) -> Security:
        return _own_schemes()


def _identified(request: Request) -> Caller:
    caller = identify_and_count(request)
    if caller is None:
        raise AUTH_CREDENTIALS_MISSING()
    return caller


def _own_schemes(*scopes: Scope) -> Security:
    return [{name: [scope.value for scope in scopes]} for name in ("bearer", "apiKey", "session")]


def _every_scheme(*scopes: Scope) -> Security:
    return [*_own_schemes(*scopes), {"oauth2": [scope.value for scope in scopes]}]


PUBLIC = Depends(Public())
# For routes that a few addresses call for many people (a mail provider's image proxy, a CDN, a
# payment provider), and for routes whose requests carry a secret or a signature.
UNLIMITED = Depends(Public(stranger=None))
# For routes where a caller could guess passwords, or could make Pressroom mail other people.
LOGIN = Depends(Public(stranger=RateLimitName.LOGIN))
BY_LINK = Depends(Public(by_trace=True))
OPTIONAL = Depends(OptionalCredential())
ANY_CALLER = Depends(AnyCredential())
UNRESTRICTED = Depends(UnrestrictedCredential())
OF_JOB_KIND = Depends(AnyCredential("Scope: that of the job's kind, such as `attachment`."))
OF_EXPORT_KIND = Depends(
    AnyCredential("Scope: `subscription.read` for members, `delivery` for the roster.")
)


def requires_scope(scope: Scope) -> Any:
    return Depends(ScopedCredential(scope))


def requires_scope_or_trace(scope: Scope) -> Any:
    return Depends(ScopeOrTrace(scope))
