"""Which access a route asks for, declared where the route is."""

from typing import Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from api.access.identity import count_anonymous, count_trace, identify_and_count
from api.limits.rate_limits import RateLimitName
from api.state import state_of
from core.refusals.access import AUTH_CREDENTIALS_MISSING, AUTH_RESTRICTED_CREDENTIAL
from core.scopes import Scope
from services.access import api_keys
from services.access.api_keys import Caller


class Access:
    """What a route asks of its caller, declared once, where the route is.

    ``Access(Scope.ATTACHMENT)`` needs that scope, ``ANY_CALLER`` any credential, ``UNRESTRICTED`` a
    credential that may make others, ``OF_JOB_KIND`` the scope of the job at hand and
    ``OF_EXPORT_KIND`` that of the file asked for, which the service checks, ``or_trace`` a scope
    where no trace id speaks for a person, which the route checks (``api.access.actors``),
    ``OPTIONAL`` takes any credential or none, ``PUBLIC`` looks at none. A test fails for a route
    without one, and for one that answers without credentials.

    It counts the call too: with credentials by these, without by address, under ``stranger``;
    ``or_link`` by the person whose trace id is in the query, if one is. ``None``: not at all.
    """

    def __init__(
        self,
        scope: Scope | None = None,
        *,
        public: bool = False,
        optional: bool = False,
        unrestricted: bool = False,
        of_job_kind: bool = False,
        of_export_kind: bool = False,
        or_trace: bool = False,
        or_link: bool = False,
        stranger: RateLimitName | None = RateLimitName.ANONYMOUS,
    ) -> None:
        self.scope = scope
        self.public = public
        self.optional = optional
        self.unrestricted = unrestricted
        self.of_job_kind = of_job_kind
        self.of_export_kind = of_export_kind
        self.or_trace = or_trace
        self.or_link = or_link
        self.stranger = stranger

    async def __call__(self, request: Request) -> Caller | None:
        if self.or_trace:
            # Counted where it is known who speaks.
            return None
        if self.public:
            if self.stranger and state_of(request).rates.counts(self.stranger):
                await run_in_threadpool(self._count_stranger, request)
            return None
        if self.optional:
            return await run_in_threadpool(identify_and_count, request, self.stranger)
        return await run_in_threadpool(self.authorise, request)

    def _count_stranger(self, request: Request) -> None:
        trace = request.query_params.get("trace_id") if self.or_link else None
        if trace is None or not count_trace(request, trace):
            count_anonymous(request, self.stranger)

    def authorise(self, request: Request) -> Caller:
        """The caller, who may do this; raises what a caller is refused for."""
        caller = identify_and_count(request, self.stranger)
        if caller is None:
            raise AUTH_CREDENTIALS_MISSING()
        if self.scope is not None:
            api_keys.require_scope(caller, self.scope)
        if self.unrestricted and not caller.unrestricted:
            raise AUTH_RESTRICTED_CREDENTIAL()
        return caller


PUBLIC = Depends(Access(public=True))
# What many people's calls for come from few addresses (a mail provider's image proxy, a CDN, a
# payment provider), and what opens to nothing but a secret or a signature in the request.
UNLIMITED = Depends(Access(public=True, stranger=None))
# Where passwords could be guessed, or people be mailed in a stranger's name.
LOGIN = Depends(Access(public=True, stranger=RateLimitName.LOGIN))
BY_LINK = Depends(Access(public=True, or_link=True))
OPTIONAL = Depends(Access(optional=True, stranger=RateLimitName.LOGIN))
ANY_CALLER = Depends(Access())
UNRESTRICTED = Depends(Access(unrestricted=True))
OF_JOB_KIND = Depends(Access(of_job_kind=True))
OF_EXPORT_KIND = Depends(Access(of_export_kind=True))


def requires_scope(scope: Scope) -> Any:
    return Depends(Access(scope))


def requires_scope_or_trace(scope: Scope) -> Any:
    return Depends(Access(scope, or_trace=True))
