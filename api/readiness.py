"""The health of this process, what it sees of a caller, and the deployment's figures."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from ipaddress import ip_address
from types import FrameType

from fastapi import Request

from api import metrics
from api.limits.bulkheads import METRICS, READINESS
from api.limits.questions import Question
from api.metrics import CANARY, PHOTO_LIMIT, PHOTO_REMAINING
from core import clock
from core.errors import TransientError
from core.logging import get_logger
from core.queues import Queue
from core.settings import Settings
from core.signed_urls import SEEN_CALLERS
from integrations.stock_photos.port import PhotoProviderName, Quota
from services import deployment_figures
from services.composer import call_charges
from services.composer.photos import noted_quotas
from services.deployment_figures import DeploymentFigures
from services.privacy.overdue_rows import count_overdue_rows
from storage.migrations import revisions
from storage.objects import NO_BUCKET, ObjectStore
from storage.redis.canaries import Canaries
from storage.resources import Resources

log = get_logger(__name__)

# Where the scope of a request keeps who has the other end of its connection.
PEER = "pressroom.peer"


def seen(request: Request, settings: Settings) -> str | None:
    """Return how the API sees a caller, as JSON; ``None`` unless a holder of the keys asks.

    An operator asks who wonders about the proxy in front of the API.
    """
    query = request.query_params
    asked = {name: query.get(name, "") for name in ("expires", "signature")}
    path = request.url.path
    if not SEEN_CALLERS.opens(settings.keyring, path, **asked, now=clock.now()):
        return None
    peer: tuple[str, int] | None = request.scope.get(PEER)
    address = peer[0] if peer else None
    try:
        found = ip_address(address or "")
    except ValueError:  # such as the path of a socket
        is_trusted = False
    else:
        is_trusted = any(found in network for network in settings.trusted_proxies or ())
    return json.dumps(
        {
            "address": request.client.host if request.client else None,
            "scheme": request.url.scheme,
            "peer": address,
            "is_forwarded": "x-forwarded-for" in request.headers,
            "is_trusted": is_trusted,
        }
    )


# A process that ends says so before it takes no more calls, and loses none.


# Once each call has its answer, to close takes a moment.
MAX_CLOSE_SECONDS = 5.0


class Drain:
    """The time between SIGTERM and the closing of the server.

    A proxy sends calls to this process until a check of ``/readyz`` has told it otherwise, and a
    call that meets a server which has just closed is lost. Everything is served meanwhile, while
    ``/readyz`` says 503 and each answer closes its connection.

    Args:
        seconds: how long it takes.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.has_begun = False

    @contextmanager
    def begun_by_sigterm(self, at_end: Callable[[], None]) -> Iterator[None]:
        """Call ``at_end`` when it is over, and then what handled the signal before.

        A second SIGTERM changes nothing: a process manager may send it to a process and to its
        parent, which passes it on.
        """
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)

        def end(number: int) -> None:
            at_end()
            if callable(before):
                before(number, None)

        def begin(number: int) -> None:
            if not self.has_begun:
                self.has_begun = True
                loop.call_later(self._seconds, end, number)

        def handle(number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(begin, number)

        is_main = threading.current_thread() is threading.main_thread()
        if is_main:
            signal.signal(signal.SIGTERM, handle)
        try:
            yield
        finally:
            if is_main:
                signal.signal(signal.SIGTERM, before)

    def end_in_time(self) -> None:
        """See that the process, if it was asked to end, does so whatever its closing waits for.

        All that it was asked for is answered. But a call that hangs can't be broken off.
        """

        def end() -> None:
            time.sleep(MAX_CLOSE_SECONDS)
            log.warning("api.ended_at_once")
            os._exit(0)

        if self.has_begun:
            threading.Thread(target=end, name="end in time", daemon=True).start()


# A load balancer takes a host out that is not ready (``/readyz``). Only what every route needs
# counts: a database that answers and has the tables of this release. All hosts share the rest
# (Redis, the broker, object storage), and most routes work without it: taking all hosts out for it
# would stop these routes too.

_KEPT_SECONDS = 1.0


class Condition(StrEnum):
    OK = "ok"
    UNAVAILABLE = "unavailable"
    # A database whose tables are an earlier release's, or a development version's.
    OUTDATED = "outdated"
    # Something is away that not every route needs.
    DEGRADED = "degraded"
    # The process was asked to end, and takes calls for a few more seconds.
    ENDING = "ending"


READY = frozenset({Condition.OK, Condition.DEGRADED})


class Readiness:
    """Checks when it is asked, once a second at most: callers within a second get one answer."""

    def __init__(self, resources: Resources) -> None:
        needed = revisions.newest_revision()

        def database() -> Condition:
            fits = revisions.fits(resources.database, needed)
            return Condition.OK if fits else Condition.OUTDATED

        def redis() -> Condition:
            resources.redis.ping()
            return Condition.OK

        def broker() -> Condition:
            is_there = resources.broker.waiting(Queue.MAINTENANCE) is not None
            return Condition.OK if is_there else Condition.UNAVAILABLE

        asks: Mapping[str, Callable[[], Condition]] = {
            "database": database,
            "redis": redis,
            "broker": broker,
            "objects": _Bucket(resources.objects).condition,
        }
        self._questions = {name: Question(ask, READINESS) for name, ask in asks.items()}
        self._check: asyncio.Task[Mapping[str, Condition]] | None = None
        self._checked_at = 0.0

    async def dependencies(self) -> Mapping[str, Condition]:
        now = asyncio.get_running_loop().time()
        if self._check is None or (self._check.done() and now - self._checked_at >= _KEPT_SECONDS):
            self._check = asyncio.ensure_future(self._ask_all())
        # Shielded, since other callers wait for the same check.
        return await asyncio.shield(self._check)

    async def _ask_all(self) -> Mapping[str, Condition]:
        answers = await asyncio.gather(*(each.answer() for each in self._questions.values()))
        self._checked_at = asyncio.get_running_loop().time()
        found = [each or Condition.UNAVAILABLE for each in answers]
        return dict(zip(self._questions, found, strict=True))


def whole(dependencies: Mapping[str, Condition], *, is_ending: bool) -> Condition:
    """Return the condition of the process, which is to get calls if it is one of ``READY``."""
    if is_ending:
        return Condition.ENDING
    if dependencies["database"] is not Condition.OK:
        return Condition.UNAVAILABLE
    is_whole = all(each is Condition.OK for each in dependencies.values())
    return Condition.OK if is_whole else Condition.DEGRADED


class _Bucket:
    """Logs why the bucket can't be used: a setting may be wrong.

    Each reason once, until the bucket can be used again: a server that is away has several in turn.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._said: set[str] = set()

    def condition(self) -> Condition:
        try:
            reason = None if self._objects.ready() else NO_BUCKET
        except TransientError as error:
            reason = str(error)
        if reason is None:
            self._said.clear()
            return Condition.OK
        if reason not in self._said:
            self._said.add(reason)
            log.error("objects.unusable", reason=reason)
        # Without its bucket the store is of no use.
        return Condition.UNAVAILABLE


# The figures of the whole deployment among the metrics, which are read when they are asked for.

# Two collectors, and people who look, cost the database one read.
_FIGURES_KEPT_SECONDS = 3.0
# A read that took long is kept for longer: reads take a twentieth of the time at most.
_KEPT_PER_SECOND = 20.0

_Quotas = Mapping[PhotoProviderName, list[Quota]]
_Rows = tuple[DeploymentFigures, Mapping[str, int]]


class Figures:
    def __init__(self, resources: Resources, readiness: Readiness) -> None:
        def read_rows() -> tuple[_Rows, float]:
            began = time.monotonic()
            rows = deployment_figures.read(resources.database), count_overdue_rows(resources)
            return rows, time.monotonic() - began

        def read_noted() -> tuple[_Quotas, metrics.Sums, dict[str, float]]:
            client = resources.redis
            canaries = Canaries(client).seconds_or_silence()
            return noted_quotas(client), call_charges.noted_usage(client), canaries

        self._readiness = readiness
        self._rows = Question(read_rows, METRICS)
        self._noted = Question(read_noted, METRICS)
        self._kept_until = 0.0

    async def refresh(self) -> None:
        """Read the figures anew; leave out those of a dependency that is away."""
        dependencies, noted, _ = await asyncio.gather(
            self._readiness.dependencies(), self._noted.answer(), self._refresh_rows()
        )
        for name, condition in dependencies.items():
            metrics.UP[name].set(condition is not Condition.UNAVAILABLE)
        quotas, usage, canaries = noted or ({}, {}, {})
        PHOTO_LIMIT.clear()
        PHOTO_REMAINING.clear()
        for provider, found in quotas.items():
            for quota in found:
                PHOTO_LIMIT.labels(provider, quota.window).set(quota.limit)
                PHOTO_REMAINING.labels(provider, quota.window).set(quota.remaining)
        metrics.USAGE.sums = usage
        CANARY.clear()
        for queue, seconds in canaries.items():
            CANARY.labels(queue).set(seconds)

    async def _refresh_rows(self) -> None:
        if time.monotonic() < self._kept_until:
            return
        # Callers who ask meanwhile wait for the same answer.
        answer = await self._rows.answer()
        if answer is None:
            metrics.show_nothing()
            return
        (figures, overdue), seconds = answer
        self._kept_until = time.monotonic() + max(_FIGURES_KEPT_SECONDS, _KEPT_PER_SECOND * seconds)
        metrics.show(figures, overdue)
