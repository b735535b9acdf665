"""Builds the API application, and runs the background loops of the API process."""

import asyncio
import gc
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version

import psycopg2
from fastapi import FastAPI, Request, Response
from redis.asyncio import Redis
from sqlalchemy.exc import SQLAlchemyError

from api.auth.page_sessions import FactorNeeded, LoginNeeded, redirect_to_factors, redirect_to_login
from api.console.assets import CONSOLE_PATH
from api.console.frame import render_console_problem
from api.cookies import READER_COOKIES, configure_cookies
from api.deployment_metrics import DeploymentMetrics
from api.drain import Drain
from api.errors import HANDLERS, problem_response
from api.html.api_docs import DOCUMENT_PATH, add_docs
from api.limits.bulkheads import BACKGROUND, REQUESTS, SINGLE_STATEMENTS, TRANSACTION_THREADS
from api.limits.rate_limits import RateLimiter
from api.middleware.layers import build_request_layers
from api.openapi import document
from api.openapi.plain_reference import add_plain_reference
from api.pages import PAGES, READER_PAGES
from api.readiness import Readiness
from api.route_classes import require_access_rules
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
from core.process.linux import trim_memory
from core.queues import RequestKind
from core.settings import Settings
from core.telemetry import spans
from integrations.challenges.registry import Challenges
from integrations.payments.registry import PaymentChannels
from integrations.receivers.client import ReceiverClient
from integrations.stock_photos.registry import StockPhotoProviders
from services import event_origins
from services.access.api_keys import UsedKeys
from services.access.api_requests import RequestLog
from services.accounts.page_paths import ACCOUNT_PATH
from services.composer.photos import CachedStockPhotos, record_quotas
from services.composer.requests import MetadataCache
from services.security_events import is_plan_error, record_plan_error
from services.senders.intake import RefusedCalls
from services.subscriptions.sign_up_views import ViewCounter
from storage.redis.client import open_async_redis
from storage.redis.request_calls import RequestCalls, Send
from storage.resources import Resources, open_resources

log = get_logger(__name__)

_WRITE_KEY_RECORDS_EVERY_SECONDS = 2.0
_WRITE_SIGN_UP_VIEWS_EVERY_SECONDS = 60
_RELEASE_MEMORY_EVERY_SECONDS = 10.0
_CANCEL_AGAIN_AFTER_SECONDS = 0.2


def create_app(settings: Settings) -> FastAPI:
    drain = Drain(settings.api_drain)
    app = FastAPI(
        title="Pressroom",
        version=version("pressroom"),
        lifespan=partial(_run_application, settings, drain),
        middleware=build_request_layers(
            settings,
            drain,
            reader_cookies=[*map(configure_cookies(settings).name_of, READER_COOKIES)]
            if settings.pages_url
            else None,
            pages=PAGES,
            reader_pages=READER_PAGES,
            folders=dict.fromkeys(
                (CONSOLE_PATH, ACCOUNT_PATH), partial(render_console_problem, settings)
            ),
        ),
        redirect_slashes=False,
        # Generated API clients name their functions after the operation ids of routes, so operation
        # ids must not change.
        generate_unique_id_function=lambda route: route.name,
        # Switch off FastAPI's telemetry, because Pressroom records its own spans, metrics and logs.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        # ``api.html.api_docs`` renders the API reference, so FastAPI's own documentation pages are
        # disabled.
        docs_url=None,
        redoc_url=None,
        openapi_url=DOCUMENT_PATH if settings.api_docs else None,
        exception_handlers=HANDLERS
        | {
            LoginNeeded: redirect_to_login,
            FactorNeeded: redirect_to_factors,
            DomainError: _respond_to_error,
        },
    )
    for router in ROUTERS:
        require_access_rules(router)
        app.include_router(router)
    if settings.api_docs:
        add_plain_reference(app, settings)
        add_docs(app)
    app.openapi = lambda: document.build_document(app, settings)  # type: ignore[method-assign]
    return app


async def _respond_to_error(request: Request, error: DomainError) -> Response:
    """Record an event if the error says that the user has reached a limit of the plan.

    The event is recorded in a separate transaction, because an error rolls back the transaction of
    its request.
    """
    credential = event_origins.current_origin().credential
    account_id = None if credential is None else credential.account_id
    if account_id is not None and is_plan_error(error.code):
        try:
            await state_of(request).in_unit_of_work(record_plan_error, account_id, error.code)
        except (DomainError, SQLAlchemyError, psycopg2.Error) as failure:
            # Return the error response even if the security event can't be stored.
            log.warning("event.not_recorded", reason=type(failure).__name__)
    return problem_response(error)


@asynccontextmanager
async def _run_application(settings: Settings, drain: Drain, app: FastAPI) -> AsyncIterator[None]:
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
    app.state.pressroom = state = _build_state(resources, redis, drain)
    loops = (
        state.subscriber.run(),
        state.jobs.run(),
        state.worker_calls.results.run(),
        state.request_calls.run(),
        state.queue_ages.run(),
        state.readiness.run(),
        _write_key_records(state),
        _write_sign_up_views(state),
        _release_memory(),
    )
    with (
        state.subscriber.listening(partial(waiters.deliver_job_status, state.jobs)),
        state.subscriber.listening(state.worker_calls.deliver),
        drain.start_on_sigterm(partial(_end_all_waits, state)),
    ):
        async with run_in_background(*loops):
            end_start()
            yield
            drain.force_exit_after_timeout()
    gc.unfreeze()
    with suppress(psycopg2.Error, SQLAlchemyError):
        state.used_keys.write_uses(resources.database)
        state.request_log.write_requests(resources.database)
        state.refused_calls.write_counts(resources)
        state.sign_up_views.write_views(resources.database)
    await state.request_calls.flush()
    await state.challenges.aclose()
    state.rate_limiter.close()
    await redis.aclose()
    resources.close()
    spans.stop_tracing()


@asynccontextmanager
async def run_in_background(*loops: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        unfinished = set(tasks)
        while unfinished:
            # Cancel the background tasks repeatedly, because an awaited operation such as a
            # connection attempt can swallow a cancellation.
            for task in unfinished:
                task.cancel()
            _, unfinished = await asyncio.wait(unfinished, timeout=_CANCEL_AGAIN_AFTER_SECONDS)


def _end_all_waits(state: State) -> None:
    """Make all waiting requests respond now, because the server is shutting down.

    A request may wait for a minute, but a shutdown allows only twenty seconds.
    """
    state.jobs.close()
    state.worker_calls.results.close()
    state.streams.closing.set()


def _build_state(resources: Resources, redis: Redis, drain: Drain) -> State:
    settings = resources.settings
    # The API process only validates photo searches, and workers call the photo providers.
    stock_photos = StockPhotoProviders(settings, partial(record_quotas, resources.redis))
    # If the broker and the cache are the same Redis server, a Redis script enqueues messages to
    # workers. If the broker and the cache are different servers, a ``send`` function sends the
    # message.
    is_shared = settings.broker == settings.cache
    send = None if is_shared else _build_sender(resources)
    calls = RequestCalls(redis, resources.waiter, send)
    readiness = Readiness(resources)
    return State(
        resources=resources,
        used_keys=UsedKeys(),
        request_log=RequestLog(),
        refused_calls=RefusedCalls(),
        sign_up_views=ViewCounter(),
        challenges=Challenges(settings),
        payments=PaymentChannels(settings),
        subscriber=Subscriber(redis, resources.waiter),
        jobs=Waiters(waiters.build_job_lookup(resources.database)),
        request_calls=calls,
        worker_calls=WorkerCalls(calls),
        queue_ages=QueueAges(resources.redis),
        metadata_cache=MetadataCache(settings, resources.keyring, resources.cache),
        photos=CachedStockPhotos(stock_photos, resources.keyring, resources.cache),
        receivers=ReceiverClient(settings.webhook_networks),
        streams=StreamCounter(),
        cookies=configure_cookies(settings),
        readiness=readiness,
        drain=drain,
        deployment_metrics=DeploymentMetrics(resources, readiness),
        rate_limiter=RateLimiter(settings),
    )


def _build_sender(resources: Resources) -> Send:
    async def send(kind: RequestKind, request_id: str) -> bool:
        message = {"request_id": request_id}
        return await REQUESTS.run(resources.broker.send, kind.task, kind.queue, message)

    return send


async def _write_key_records(state: State) -> None:
    """Write records about API keys and senders to the database every two seconds.

    The function writes one kind of record after another, so that a hanging database blocks only one
    thread of ``BACKGROUND``. If the database can't store the records, the entries of request logs
    stay in memory until the next attempt, but all other records are lost.
    """
    resources = state.resources
    writers: dict[str, Callable[[], None]] = {
        "api_keys.uses_not_written": partial(state.used_keys.write_uses, resources.database),
        "api_requests.not_written": partial(state.request_log.write_requests, resources.database),
        "sender_counts.not_written": partial(state.refused_calls.write_counts, resources),
    }
    while True:
        await asyncio.sleep(_WRITE_KEY_RECORDS_EVERY_SECONDS)
        for failure, write in writers.items():
            try:
                await BACKGROUND.run(write)
            except (psycopg2.Error, SQLAlchemyError, DomainError) as error:
                log.warning(failure, reason=type(error).__name__)


async def _write_sign_up_views(state: State) -> None:
    while True:
        await asyncio.sleep(_WRITE_SIGN_UP_VIEWS_EVERY_SECONDS)
        try:
            await BACKGROUND.run(state.sign_up_views.write_views, state.resources.database)
        except (psycopg2.Error, DomainError) as error:
            log.warning("sign_up_views.not_written", reason=type(error).__name__)


# Optimization: memory that the API returns to the system (decision 17).
async def _release_memory() -> None:
    """Return freed memory to the operating system at regular intervals.

    Python itself doesn't give the memory of large responses back to the operating system.
    """
    while True:
        await asyncio.sleep(_RELEASE_MEMORY_EVERY_SECONDS)
        await BACKGROUND.run(trim_memory)
