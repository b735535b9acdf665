import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version

import anyio.to_thread
import psycopg2
from fastapi import FastAPI
from fastapi_standalone_docs import StandaloneDocs
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

from api import errors, openapi
from api.cookies import cookies_of
from api.limits.password_hashing import HashingPool
from api.limits.rate_limits import RateLimiter
from api.middleware.body_limits import BodyLimitMiddleware
from api.middleware.cors import ApiCorsMiddleware
from api.middleware.deadlines import DeadlineMiddleware
from api.middleware.headers import HeadersMiddleware
from api.middleware.paths import PathMiddleware
from api.middleware.request_log import InternalErrorMiddleware, RequestMiddleware
from api.routers import (
    account_pages,
    accounts,
    attachments,
    bulk_members,
    charges,
    composer,
    consent,
    credits,
    exports,
    grants,
    imports,
    jobs,
    lists,
    login,
    media,
    members,
    oauth,
    operations,
    payment_returns,
    registration,
    subscription_pages,
    subscriptions,
    topups,
    webhooks,
)
from api.state import State
from api.waiting.event_streams import StreamCounter
from api.waiting.subscriber import Subscriber
from api.waiting.waiters import Lookup, Waiters, background_loops
from api.waiting.worker_calls import WorkerCalls
from core.logging import get_logger
from core.settings import Settings
from integrations.challenges.registry import Challenges
from integrations.payments.registry import PaymentChannels
from integrations.stock_photos.registry import StockPhotoProviders
from models import FINISHED
from services.access.api_keys import LastUseBuffer
from services.composer.metadata_requests import MetadataCache
from services.composer.photos import CachedStockPhotos, note_quotas
from services.jobs import records
from storage.database import Database
from storage.redis.client import open_async_redis
from storage.redis.notifications import job_of
from storage.resources import Resources, open_resources

log = get_logger(__name__)

# Handlers that speak to a service run in these threads, each with a connection of its own, so
# that none waits for a connection while it holds a thread.
THREADS = 24

_WRITE_USES_SECONDS = 1.0

# Looked through in this order: those that are asked most, and do least, come first.
_RESOURCES = (
    charges,
    credits,
    composer,
    attachments,
    media,
    lists,
    subscriptions,
    members,
    bulk_members,
    imports,
    exports,
    topups,
    webhooks,
    payment_returns,
    jobs,
    accounts,
    oauth,
    grants,
    subscription_pages,
    login,
    registration,
    account_pages,
    consent,
    operations,
)

# What people look at, with a browser.
_PAGES = (subscription_pages, payment_returns, login, registration, account_pages, consent)


def _middleware(settings: Settings) -> list[Middleware]:
    return [
        Middleware(HeadersMiddleware, settings=settings),
        Middleware(RequestMiddleware),
        Middleware(ApiCorsMiddleware, pages=[each.router for each in _PAGES]),
        Middleware(InternalErrorMiddleware),
        Middleware(PathMiddleware),
        Middleware(DeadlineMiddleware),
        Middleware(BodyLimitMiddleware),
    ]


def create_app(settings: Settings) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _serving(settings) as state:
            app.state.pressroom = state
            yield

    app = FastAPI(
        title="Pressroom",
        version=version("pressroom"),
        lifespan=lifespan,
        middleware=_middleware(settings),
        redirect_slashes=False,
        # Measures and logs are ours; asking each time whether somebody set up others costs a
        # twentieth of a small request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        redoc_url=None,
    )
    errors.add_handlers(app)
    for resource in _RESOURCES:
        app.include_router(resource.router)
    # The documentation page must work on a machine without a network.
    StandaloneDocs(app)
    app.openapi = lambda: openapi.document(  # type: ignore[method-assign]
        app, api_key_header=settings.api_key_header
    )
    return app


@asynccontextmanager
async def _serving(settings: Settings) -> AsyncIterator[State]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    resources = open_resources(settings, concurrency=THREADS, name="api")
    redis = open_async_redis(settings)
    state = State(
        resources=resources,
        key_uses=LastUseBuffer(),
        challenges=Challenges(settings),
        payments=PaymentChannels(settings),
        subscriber=Subscriber(redis),
        jobs=Waiters(_finished_jobs(resources)),
        calls=WorkerCalls(resources, redis),
        shelf=MetadataCache(settings, resources.keyring, resources.cache),
        photos=_photos(resources),
        streams=StreamCounter(),
        cookies=cookies_of(settings),
        hashing=HashingPool(),
        rates=RateLimiter(settings),
    )
    hearing = state.subscriber
    with hearing.listening(partial(_hear_job, state.jobs)), hearing.listening(state.calls.hear):
        writing = _write_uses(state.key_uses, resources.database)
        async with background_loops(
            hearing.run(), state.jobs.run(), state.calls.results.run(), writing
        ):
            # All that was made so far stays until the end; looking through it for garbage again
            # and again costs more than a request does.
            gc.collect()
            gc.freeze()
            yield state
    gc.unfreeze()
    with suppress(psycopg2.Error):
        state.key_uses.write(resources.database)
    await state.calls.aclose()
    await state.challenges.aclose()
    await redis.aclose()
    state.rates.close()
    resources.close()


async def _write_uses(uses: LastUseBuffer, database: Database) -> None:
    while True:
        await asyncio.sleep(_WRITE_USES_SECONDS)
        try:
            await run_in_threadpool(uses.write, database)
        except psycopg2.Error as error:
            # Who goes on using a key notes it again.
            log.warning("api_keys.uses_not_written", reason=type(error).__name__)


def _photos(resources: Resources) -> CachedStockPhotos:
    # Workers do the asking; here is only judged what may be asked.
    providers = StockPhotoProviders(resources.settings, partial(note_quotas, resources.redis))
    return CachedStockPhotos(providers, resources.keyring, resources.cache)


def _hear_job(waiters: Waiters[bool], topic: str, status: str) -> None:
    # Only a hint: a deployment that shares the Redis server, in whatever database, is heard too.
    if status in FINISHED:
        waiters.nudge(topic)


def _finished_jobs(resources: Resources) -> Lookup[bool]:
    def read(topics: list[str]) -> Mapping[str, bool]:
        wanted = {topic: job_of(topic) for topic in topics}
        finished = records.finished_among(resources.database, list(wanted.values()))
        return {topic: True for topic, job_id in wanted.items() if job_id in finished}

    async def look(topics: list[str]) -> Mapping[str, bool]:
        return await run_in_threadpool(read, topics)

    return look
