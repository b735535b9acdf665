"""For the operator: whether the process and its dependencies are up, and the metrics."""

import secrets
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from api.access.requirements import UNLIMITED
from api.bodies.json_route import JsonRoute
from api.health import callers_view, readiness
from api.openapi import refuses, text_of
from api.parameters import StateOf
from api.schemas.operations import DependenciesHealth, ProcessHealth
from core.refusals.access import AUTH_METRICS_TOKEN
from core.signed_urls import SEEN_HEADER

_NOT_READY = "The database is missing, or outdated, or the process is about to end"

router = APIRouter(tags=["Operations"], dependencies=[UNLIMITED], route_class=JsonRoute)


@router.get("/healthz")
async def check_health(request: Request, response: Response, state: StateOf) -> ProcessHealth:
    """The process is alive; its dependencies are not checked."""
    seen = callers_view.seen(request, state.resources.settings)
    if seen is not None:
        response.headers[SEEN_HEADER] = seen
    return ProcessHealth(status="ok")


@router.get(
    "/readyz",
    response_model=DependenciesHealth,
    responses={503: {"model": DependenciesHealth, "description": _NOT_READY}},
)
async def check_readiness(state: StateOf) -> JSONResponse:
    """200 while this process can serve calls, else 503; with the status of each dependency.

    Only the database is needed, with its migrations done; without another one the status is
    `degraded`. That is at most a second old. A process that was asked to end says `ending`, and
    still serves for a few seconds.
    """
    dependencies = await state.readiness.dependencies()
    status = readiness.whole(dependencies, is_ending=state.drain.has_begun)
    is_ready = status in readiness.READY
    code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    headers = {} if is_ready else {"Retry-After": "1"}
    return JSONResponse({"status": status, "dependencies": dependencies}, code, headers)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "content": text_of("text/plain", "pressroom_waiting_requests 0.0\n"),
            "description": "Prometheus text format",
        },
        **refuses(AUTH_METRICS_TOKEN),
    },
)
async def read_metrics(request: Request, state: StateOf) -> Response:
    """Prometheus metrics, for the bearer of PRESSROOM_METRICS_TOKEN.

    Figures of a dependency that does not answer within a second are left out. A call that
    accepts OpenMetrics gets that, with the trace of one request in each bucket as an exemplar.
    """
    token = state.resources.settings.metrics_token
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    expected = token.get_secret_value() if token else ""
    is_token = secrets.compare_digest(sent.strip().encode(), expected.encode())
    if not expected or scheme.lower() != "bearer" or not is_token:
        raise AUTH_METRICS_TOKEN()
    await state.figures.refresh()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(REGISTRY), media_type=content_type)
