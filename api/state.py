from dataclasses import dataclass

from starlette.requests import HTTPConnection

from api.cookies import Cookies
from api.limits.password_hashing import HashingPool
from api.limits.rate_limits import RateLimiter
from api.waiting.event_streams import StreamCounter
from api.waiting.subscriber import Subscriber
from api.waiting.waiters import Waiters
from api.waiting.worker_calls import WorkerCalls
from integrations.challenges.registry import Challenges
from integrations.payments.registry import PaymentChannels
from services.access.api_keys import LastUseBuffer
from services.composer.metadata_requests import MetadataCache
from services.composer.photos import CachedStockPhotos
from storage.resources import Resources


@dataclass(frozen=True)
class State:
    """What the handlers of one API process share."""

    resources: Resources
    key_uses: LastUseBuffer
    challenges: Challenges
    payments: PaymentChannels
    subscriber: Subscriber
    jobs: Waiters[bool]
    calls: WorkerCalls
    shelf: MetadataCache
    photos: CachedStockPhotos
    streams: StreamCounter
    cookies: Cookies
    hashing: HashingPool
    rates: RateLimiter


def state_of(connection: HTTPConnection) -> State:
    state: State = connection.app.state.pressroom
    return state
