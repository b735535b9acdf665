import asyncio
import gc
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version

import psycopg2
from fastapi import FastAPI, Request, Response
from redis.asyncio import Redis
from sqlalchemy.exc import SQLAlchemyError

from api import openapi
from api.auth.page_sessions import FactorNeeded, LoginNeeded, redirect_to_factors, redirect_to_login
from api.console.assets import CONSOLE_PATH
from api.console.frame import render_console_problem
from api.cookies import OF_READERS, cookies_of
from api.deployment_metrics import DeploymentMetrics
from api.drain import Drain
from api.errors import HANDLERS, problem_response
from api.html.api_docs import DOCUMENT_PATH, add_docs
from api.limits.bulkheads import BACKGROUND, REQUESTS, SINGLE_STATEMENTS, TRANSACTION_THREADS
from api.limits.rate_limits import RateLimiter
from api.middleware.layers import request_layers
from api.pages import PAGES, READER_PAGES
from api.readiness import Readiness
from api.routes import ROUTERS
from api.state import State, state_of
from api.waiting import waiters
from api.waiting.event_streams import StreamCounter
from api.waiting.queue_ages import QueueAges
from api.waiting.subscriber import Subscriber
from api.waiting.waiters import Waiters
from api.waiting.worker_calls import WorkerCalls
from core.errors import DomainError
from core.logging import get_logger
from core.process.garbage_collection import end_start
from core.process.linux import give_memory_back
from core.queues import RequestKind
from core.settings import Settings
from core.telemetry import spans
from integrations.challenges.registry import Challenges
from integrations.payments.registry import PaymentChannels
from integrations.receivers.client import ReceiverClient
from integrations.stock_photos.registry import StockPhotoProviders
from services import event_origins
from services.access.api_keys import UsedKeys
from services.accounts.page_paths import ACCOUNT_PATH
from services.composer.photos import CachedStockPhotos, note_quotas
from services.composer.requests import MetadataCache
from services.security_events import is_plan_error, record_plan_error
from storage.redis.client import open_async_redis
from storage.redis.request_calls import RequestCalls, Send
from storage.resources import Resources, open_resources

log = get_logger(__name__)

_WRITE_LAST_USES_SECONDS = 1.0
_GIVE_BACK_SECONDS = 10.0
_PAUSE_BEFORE_CANCELLING_AGAIN = 0.2


def create_app(settings: Settings) -> FastAPI:
    drain = Drain(settings.api_drain)
    app = FastAPI(
        title="Pressroom",
        version=version("pressroom"),
        lifespan=partial(_serving, settings, drain),
        middleware=request_layers(
            settings,
            drain,
            own_cookies=[*map(cookies_of(settings).name, OF_READERS)]
            if settings.pages_url
            else None,
            pages=PAGES,
            reader_pages=READER_PAGES,
            folders=dict.fromkeys(
                (CONSOLE_PATH, ACCOUNT_PATH), partial(render_console_problem, settings)
            ),
        ),
        redirect_slashes=False,
        # A contract: generated clients call their functions so.
        generate_unique_id_function=lambda route: route.name,
        # Switch off FastAPI's telemetry, because Pressroom records its own spans, metrics and logs.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        # Our own page shows the document (``api_docs``).
        docs_url=None,
        redoc_url=None,
        openapi_url=DOCUMENT_PATH if settings.api_docs else None,
        exception_handlers=HANDLERS
        | {
            LoginNeeded: redirect_to_login,
            FactorNeeded: redirect_to_factors,
            DomainError: _answer_error,
        },
    )
    for router in ROUTERS:
        app.include_router(router)
    if settings.api_docs:
        add_docs(app)
    app.openapi = lambda: openapi.document(app, settings)  # type: ignore[method-assign]
    return app


async def _answer_error(request: Request, error: DomainError) -> Response:
    """Answer an error; record one of the plan first, since its transaction was undone."""
    credential = event_origins.current_origin().credential
    user_id = None if credential is None else credential.user_id
    if user_id is not None and is_plan_error(error.code):
        try:
            await state_of(request).in_unit_of_work(record_plan_error, user_id, error.code)
        except (DomainError, SQLAlchemyError, psycopg2.Error) as failure:
            # The error stands, and the next one is recorded again.
            log.warning("event.not_recorded", reason=type(failure).__name__)
    return problem_response(error)


@asynccontextmanager
async def _serving(settings: Settings, drain: Drain, app: FastAPI) -> AsyncIterator[None]:
    spans.start_tracing("pressroom-api")
    waiter = secrets.token_urlsafe(9)
    resources = open_resources(
        settings,
        concurrency=TRANSACTION_THREADS,
        name="api",
        waiter=waiter,
        single_statements=SINGLE_STATEMENTS,
    )
    resources.open_all()
    redis = open_async_redis(settings)
    app.state.pressroom = state = _state(resources, redis, drain)
    subscriber, calls = state.subscriber, state.worker_calls
    loops = (
        subscriber.run(),
        state.jobs.run(),
        calls.results.run(),
        state.request_calls.run(),
        state.queue_ages.run(),
        _write_last_uses(state),
        _give_memory_back(),
    )
    with (
        subscriber.listening(partial(waiters.deliver_job_status, state.jobs)),
        subscriber.listening(calls.deliver),
        drain.begun_by_sigterm(partial(_answer_all, state)),
    ):
        async with run_in_background(*loops):
            end_start()
            # Not waited for: the log says from the start what is wrong with what is asked.
            asked = asyncio.ensure_future(state.readiness.dependencies())
            yield
            drain.end_in_time()
            asked.cancel()
    gc.unfreeze()
    with suppress(psycopg2.Error):
        state.used_keys.write_uses(resources.database)
    await state.request_calls.flush()
    await state.challenges.aclose()
    state.rate_limiter.close()
    await redis.aclose()
    resources.close()
    spans.stop_tracing()


@asynccontextmanager
async def run_in_background(*loops: Awaitable[None]) -> AsyncIterator[None]:
    """Run endless loops until the block ends."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        unfinished = set(tasks)
        while unfinished:
            # Cancel repeatedly, because an awaited operation such as a connection attempt can
            # swallow a cancellation.
            for task in unfinished:
                task.cancel()
            _, unfinished = await asyncio.wait(unfinished, timeout=_PAUSE_BEFORE_CANCELLING_AGAIN)


def _answer_all(state: State) -> None:
    """Answer all who wait, since the server is about to close.

    It closes this application only when the last call is answered, and gives it twenty seconds; a
    caller may wait for a minute.
    """
    state.jobs.close()
    state.worker_calls.results.close()
    state.streams.closing.set()


def _state(resources: Resources, redis: Redis, drain: Drain) -> State:
    settings = resources.settings
    # Workers call the providers; this process only checks what a caller may ask them for.
    stock_photos = StockPhotoProviders(settings, partial(note_quotas, resources.redis))
    # A script puts a message on a queue that is beside it; a broker elsewhere is sent to.
    is_beside = settings.broker == settings.cache
    calls = RequestCalls(redis, resources.waiter, None if is_beside else _sender(resources))
    readiness = Readiness(resources)
    return State(
        resources=resources,
        used_keys=UsedKeys(),
        challenges=Challenges(settings),
        payments=PaymentChannels(settings),
        subscriber=Subscriber(redis, resources.waiter),
        jobs=Waiters(waiters.job_lookup(resources.database)),
        request_calls=calls,
        worker_calls=WorkerCalls(calls),
        queue_ages=QueueAges(resources.redis),
        metadata_cache=MetadataCache(settings, resources.keyring, resources.cache),
        photos=CachedStockPhotos(stock_photos, resources.keyring, resources.cache),
        receivers=ReceiverClient(settings.webhook_networks),
        streams=StreamCounter(),
        cookies=cookies_of(settings),
        readiness=readiness,
        drain=drain,
        figures=DeploymentMetrics(resources, readiness),
        rate_limiter=RateLimiter(settings),
    )


def _sender(resources: Resources) -> Send:
    async def send(kind: RequestKind, request_id: str) -> bool:
        message = {"request_id": request_id}
        return await REQUESTS.run(resources.broker.send, kind.task, kind.queue, message)

    return send


async def _write_last_uses(state: State) -> None:
    while True:
        await asyncio.sleep(_WRITE_LAST_USES_SECONDS)
        try:
            await BACKGROUND.run(state.used_keys.write_uses, state.resources.database)
        except (psycopg2.Error, DomainError) as error:
            # The next call with the same key notes its use again.
            log.warning("api_keys.uses_not_written", reason=type(error).__name__)


# Optimization: memory that the API returns to the system (decision 17).
async def _give_memory_back() -> None:
    """Return freed memory to the operating system every few seconds.

    Otherwise each thread would keep some memory of the large responses that it built.
    """
    while True:
        await asyncio.sleep(_GIVE_BACK_SECONDS)
        await BACKGROUND.run(give_memory_back)
