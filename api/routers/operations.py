"""For the operator: whether the process and its dependencies are up, and the metrics."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from api.access.requirements import UNLIMITED
from api.bodies.json_route import JsonRoute
from api.metrics import lane_times, language_model
from api.metrics.requests import JOBS, PHOTO_LIMIT, PHOTO_REMAINING
from api.openapi import refuses
from api.state import State, state_of
from core.errors import TransientError
from core.refusals.access import AUTH_METRICS_TOKEN
from services.composer.photos import noted_quotas
from services.jobs import records
from storage.resources import Resources

router = APIRouter(tags=["Operations"], dependencies=[UNLIMITED], route_class=JsonRoute)


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process is alive; its dependencies are not checked."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "Which dependency is missing"}})
def readyz(request: Request) -> JSONResponse:
    """The status of each dependency by name: 200 when all of them answer, else 503."""
    resources = state_of(request).resources
    checks = {name: _answers(check, resources) for name, check in _CHECKS.items()}
    ready = all(checks.values())
    body = {
        "status": "ok" if ready else "unavailable",
        "dependencies": {name: "ok" if fine else "unavailable" for name, fine in checks.items()},
    }
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse(body, status)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}}, "description": "Prometheus text format"},
        **refuses(AUTH_METRICS_TOKEN),
    },
)
def metrics(request: Request) -> Response:
    """Prometheus metrics, for the bearer of PRESSROOM_METRICS_TOKEN."""
    state = state_of(request)
    token = state.resources.settings.metrics_token
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    expected = token.get_secret_value() if token else ""
    is_token = secrets.compare_digest(sent.strip().encode(), expected.encode())
    if not expected or scheme.lower() != "bearer" or not is_token:
        raise AUTH_METRICS_TOKEN()
    _count_jobs(state)
    _show_quotas(state)
    language_model.collect_llm_usage(state.resources.redis)
    lane_times.collect_canaries(state.resources.redis)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _select_one(resources: Resources) -> None:
    with resources.unit_of_work() as uow:
        uow.session.execute(text("SELECT 1"))


_CHECKS: dict[str, Callable[[Resources], object]] = {
    "database": _select_one,
    "redis": lambda resources: resources.redis.ping(),
    "objects": lambda resources: resources.objects.ready(),
}


def _answers(check: Callable[[Resources], object], resources: Resources) -> bool:
    try:
        # Only the object store answers in a way that says no: its bucket does not exist.
        return check(resources) is not False
    except (SQLAlchemyError, RedisError, TransientError):
        return False


def _count_jobs(state: State) -> None:
    with state.resources.unit_of_work() as uow:
        counts = records.count_unfinished(uow)
    JOBS.clear()
    for (lane, status), count in counts.items():
        JOBS.labels(lane, status).set(count)


def _show_quotas(state: State) -> None:
    """Workers note the providers' quotas in Redis; while Redis is away, none are shown."""
    PHOTO_LIMIT.clear()
    PHOTO_REMAINING.clear()
    with suppress(RedisError):
        for provider, quotas in noted_quotas(state.resources.redis).items():
            for quota in quotas:
                PHOTO_LIMIT.labels(provider, quota.window).set(quota.limit)
                PHOTO_REMAINING.labels(provider, quota.window).set(quota.remaining)
