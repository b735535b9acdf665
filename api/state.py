"""Defines the objects that all route handlers of an API process share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from api.cookies import Cookies
from api.deployment_metrics import DeploymentMetrics
from api.drain import Drain
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import HOST_LOOKUPS_BY_CALLER
from api.limits.rate_limits import RateLimiter
from api.readiness import Readiness
from api.waiting.event_streams import StreamCounter
from api.waiting.queue_ages import QueueAges
from api.waiting.subscriber import Subscriber
from api.waiting.waiters import Waiters
from api.waiting.worker_calls import WorkerCalls
from core.errors.webhooks import WEBHOOK_URL_NOT_ALLOWED
from core.ids import AccountId
from core.queues import Queue
from integrations.challenges.registry import Challenges
from integrations.payments.registry import PaymentChannels
from integrations.receivers.client import ReceiverClient
from integrations.receivers.destinations import DestinationRefused
from services.access.api_keys import UsedKeys
from services.access.api_requests import RequestLog
from services.composer.photos import CachedStockPhotos
from services.composer.requests import MetadataCache
from services.senders.intake import RefusedCalls
from services.subscriptions.sign_up_views import ViewCounter
from storage.redis.request_calls import RequestCalls
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

P = ParamSpec("P")
T = TypeVar("T")

MAX_HOST_LOOKUP_SECONDS = 2.0


@dataclass(frozen=True)
class State:
    resources: Resources
    used_keys: UsedKeys
    request_log: RequestLog
    refused_calls: RefusedCalls
    sign_up_views: ViewCounter
    challenges: Challenges
    payments: PaymentChannels
    subscriber: Subscriber
    jobs: Waiters[bool]
    request_calls: RequestCalls
    worker_calls: WorkerCalls
    queue_ages: QueueAges
    metadata_cache: MetadataCache
    photos: CachedStockPhotos
    receivers: ReceiverClient
    streams: StreamCounter
    cookies: Cookies
    readiness: Readiness
    drain: Drain
    deployment_metrics: DeploymentMetrics
    rate_limiter: RateLimiter

    async def in_unit_of_work(
        self, work: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await RECORDS.run(self.transact, lambda uow: work(uow, *args, **kwargs))

    def transact(self, work: Callable[[UnitOfWork], T]) -> T:
        """Commit the transaction unless the work raises an error."""
        with self.resources.unit_of_work() as uow:
            return work(uow)

    async def check_receiver(self, account_id: AccountId, url: str) -> None:
        """Check that webhooks may be sent to the URL, after looking up its host in DNS.

        Raises ``service.busy`` while another DNS lookup for the same user hangs.
        """
        lookup = HOST_LOOKUPS_BY_CALLER.run(account_id, self.receivers.check, url)
        try:
            async with asyncio.timeout(MAX_HOST_LOOKUP_SECONDS):
                # A DNS lookup can't be cancelled, so a hanging lookup blocks the user's only thread
                # for DNS lookups.
                await asyncio.shield(lookup)
        except TimeoutError:
            rule = (
                f"must have a host that DNS resolves within {MAX_HOST_LOOKUP_SECONDS:.0f} seconds"
            )
            raise WEBHOOK_URL_NOT_ALLOWED(rule=rule) from None
        except DestinationRefused as refused:
            raise WEBHOOK_URL_NOT_ALLOWED(rule=str(refused)) from None

    def admit(self, queue: Queue, account_id: AccountId, seconds: float) -> None:
        """Refuse work before its data is stored if the work would wait too long in its queue.

        ``seconds``: how long the caller waits for the result.
        """
        self.queue_ages.check(queue, waits=seconds > 0)
        if seconds > 0:
            self.jobs.check_room(account_id)


def state_of(connection: HTTPConnection) -> State:
    state: State = connection.app.state.pressroom
    return state


async def _find_state(request: Request) -> State:
    # The function is asynchronous only because FastAPI would run a synchronous function in a
    # thread.
    return state_of(request)


StateOf = Annotated[State, Depends(_find_state)]


async def _open_unit_of_work(state: StateOf) -> UnitOfWork:
    return state.resources.unit_of_work()


# The database transaction of a route handler, which is committed before the response is sent.
Transaction = Annotated[UnitOfWork, Depends(_open_unit_of_work)]
