"""What routes ask for: which access, which page, how long to wait, which idempotency key."""

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool

from api.identity import count_stranger, count_trace, identify_counted
from api.rates import Rate
from api.state import State, state_of
from core import ids
from core.errors import forbidden, malformed, unauthenticated
from core.scopes import Scope
from services.access import api_keys
from services.access.api_keys import Caller
from services.jobs.idempotency import IdempotencyKey

MAX_LIMIT = 1000


class Access:
    """What a route asks of its caller, declared once, where the route is.

    ``Access(Scope.ATTACHMENT)`` needs that scope, ``ANY_CALLER`` any credential, ``UNRESTRICTED`` a
    credential that may make others, ``OF_JOB_KIND`` the scope of the job at hand and
    ``OF_EXPORT_KIND`` that of the file asked for, which the service checks, ``or_trace`` a scope
    where no trace id speaks for a person, which the route checks (``api.speaking``), ``OPTIONAL``
    takes any credential or none, ``PUBLIC`` looks at none. A test fails for a route without one,
    and for one that answers without credentials.

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
        stranger: Rate | None = Rate.ANONYMOUS,
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
            return await run_in_threadpool(identify_counted, request, self.stranger)
        return await run_in_threadpool(self.authorise, request)

    def _count_stranger(self, request: Request) -> None:
        trace = request.query_params.get("trace_id") if self.or_link else None
        if trace is None or not count_trace(request, trace):
            count_stranger(request, self.stranger)

    def authorise(self, request: Request) -> Caller:
        """The caller, who may do this; raises what a caller is refused for."""
        caller = identify_counted(request, self.stranger)
        if caller is None:
            raise unauthenticated(
                "auth.credentials_missing",
                "Send an API key or access token as 'Authorization: Bearer …'.",
            )
        if self.scope is not None:
            api_keys.require_scope(caller, self.scope)
        if self.unrestricted and not caller.unrestricted:
            raise forbidden(
                "auth.restricted_credential", "This needs a session or an unrestricted API key."
            )
        return caller


PUBLIC = Depends(Access(public=True))
# What many people's calls for come from few addresses (a mail provider's image proxy, a CDN, a
# payment provider), and what opens to nothing but a secret or a signature in the request.
UNCOUNTED = Depends(Access(public=True, stranger=None))
# Where passwords could be guessed, or people be mailed in a stranger's name.
LOGIN = Depends(Access(public=True, stranger=Rate.LOGIN))
BY_LINK = Depends(Access(public=True, or_link=True))
OPTIONAL = Depends(Access(optional=True, stranger=Rate.LOGIN))
ANY_CALLER = Depends(Access())
UNRESTRICTED = Depends(Access(unrestricted=True))
OF_JOB_KIND = Depends(Access(of_job_kind=True))
OF_EXPORT_KIND = Depends(Access(of_export_kind=True))


def needs(scope: Scope) -> Any:
    return Depends(Access(scope))


def needs_unless_traced(scope: Scope) -> Any:
    return Depends(Access(scope, or_trace=True))


async def _shared(request: Request) -> State:
    return state_of(request)


StateOf = Annotated[State, Depends(_shared)]


def _path_id(value: object) -> int:
    """An unsigned 64-bit integer; one beyond every id we give becomes 0, which names nothing."""
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > ids.MAX_UINT64:
        raise ValueError("must be an unsigned 64-bit integer")
    return int(text) if int(text) <= ids.MAX_ID else 0


PathId = Annotated[int, BeforeValidator(_path_id)]

Offset = Annotated[int, Query(ge=0, le=ids.MAX_ID, description="How many to skip, newest first")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many to answer at most")]


@dataclass(frozen=True)
class Preference:
    """``Prefer`` (RFC 7240): how long to wait for slow work, in seconds.

    ``respond-async`` alone is 0 where work goes on without its caller; beside ``wait=N`` it says
    what N seconds of waiting say anyway.
    """

    wait: int | None
    respond_async: bool

    def seconds(self, default: float) -> float:
        if self.wait is None:
            return 0 if self.respond_async else default
        return self.wait

    def patience(self, most: float) -> float:
        """The same for work that ends with the wait: there is nothing to respond to later."""
        return most if self.wait is None else min(self.wait, most)


MAX_WAIT_SECONDS = 60
_WAIT = re.compile(r"\s*wait\s*=\s*\"?(\d{1,4})\"?\s*\Z", re.IGNORECASE)


async def preference(request: Request) -> Preference:
    wait: int | None = None
    respond_async = False
    # RFC 7240: what isn't understood is ignored; the first of a kind counts.
    for part in ",".join(request.headers.getlist("prefer")).split(","):
        name = part.partition(";")[0]
        respond_async |= name.strip().lower() == "respond-async"
        if wait is None and (match := _WAIT.match(name)):
            wait = min(int(match[1]), MAX_WAIT_SECONDS)
    return Preference(wait, respond_async)


PreferenceOf = Annotated[Preference, Depends(preference)]

_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{16,255}\Z")


def idempotency_key(request: Request, caller: Caller, body: list[bytes]) -> IdempotencyKey | None:
    """The request's ``Idempotency-Key`` with the fingerprint of what was sent under it."""
    sent = request.headers.get("idempotency-key")
    if sent is None:
        return None
    if not _IDEMPOTENCY_KEY.match(sent):
        raise malformed(
            "idempotency.key_invalid", "An Idempotency-Key has 16 to 255 printable characters."
        )
    path = request.scope["path"]
    query = urlencode(sorted(request.query_params.multi_items()))
    digest = hashlib.sha256()
    for part in (request.method.encode(), path.encode(), query.encode(), *body):
        # The length before each part keeps ("ab", "c") apart from ("a", "bc").
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return IdempotencyKey(caller.user_id, f"{request.method} {path}", sent, digest.digest())
