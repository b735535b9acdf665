from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import HTTPConnection

from api.cookies import Cookies
from api.health.drain import Drain
from api.health.figures import Figures
from api.health.readiness import Readiness
from api.limits.bulkheads import RECORDS
from api.limits.password_hashing import HashingPool
from api.limits.rate_limits import RateLimiter
from api.limits.shares import NAMES_BY_CALLER
from api.waiting.event_streams import StreamCounter
from api.waiting.lane_ages import LaneAges
from api.waiting.subscriber import Subscriber
from api.waiting.waiters import Waiters
from api.waiting.worker_calls import WorkerCalls
from core.lanes import Lane
from core.refusals.webhooks import WEBHOOK_URL_NOT_ALLOWED
from integrations.challenges.registry import Challenges
from integrations.payments.registry import PaymentChannels
from integrations.receivers.destination import DestinationRefused
from integrations.receivers.posting import ReceiverClient
from services.access.api_keys import LastUseBuffer
from services.composer.metadata_requests import MetadataCache
from services.composer.photos import CachedStockPhotos
from storage.redis.request_calls import RequestCalls
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """The objects that all handlers of one API process share."""

    resources: Resources
    last_uses: LastUseBuffer
    challenges: Challenges
    payments: PaymentChannels
    subscriber: Subscriber
    jobs: Waiters[bool]
    request_calls: RequestCalls
    worker_calls: WorkerCalls
    lane_ages: LaneAges
    metadata_cache: MetadataCache
    photos: CachedStockPhotos
    receivers: ReceiverClient
    streams: StreamCounter
    cookies: Cookies
    hashing_pool: HashingPool
    readiness: Readiness
    drain: Drain
    figures: Figures
    rate_limiter: RateLimiter

    async def in_unit_of_work(self, work: Callable[[UnitOfWork], T]) -> T:
        """``transact`` in a thread."""
        return await RECORDS.run(self.transact, work)

    def transact(self, work: Callable[[UnitOfWork], T]) -> T:
        """Do the work in a transaction that is committed when it ends well."""
        with self.resources.unit_of_work() as uow:
            return work(uow)

    async def check_receiver(self, user_id: int, url: str) -> None:
        """Look up the host of a webhook's URL for this user.

        Raises ``webhook.url_not_allowed``, and ``service.busy`` while such look-ups of theirs hang.
        """
        try:
            await NAMES_BY_CALLER.run(user_id, self.receivers.check, url)
        except DestinationRefused as refused:
            raise WEBHOOK_URL_NOT_ALLOWED(rule=str(refused)) from None

    def admit(self, lane: Lane, owner_id: int, seconds: float) -> None:
        """Refuse work that would wait too long, before anything of it is stored.

        ``seconds``: how long its caller waits for it. Raises ``queue.overloaded``,
        ``queue.too_many_waiters``, ``queue.too_many_of_yours``.
        """
        self.lane_ages.check(lane, waits=seconds > 0)
        if seconds > 0:
            self.jobs.check_room(owner_id)


def state_of(connection: HTTPConnection) -> State:
    state: State = connection.app.state.pressroom
    return state
