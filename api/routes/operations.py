"""The API endpoints that describe the service itself: its health, metrics and contacts."""

import secrets
from datetime import timedelta
from http import HTTPStatus
from importlib.metadata import version

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from api.auth.redirects import redirect_to_path
from api.auth.requirements import PUBLIC, UNLIMITED
from api.caller_description import describe_caller
from api.console.assets import CONSOLE_PATH
from api.html.api_docs import DOCS_PATH, DOCUMENT_PATH
from api.html.frame import render_page
from api.middleware.versions import VERSIONS
from api.openapi import describe_text, error_responses
from api.readiness import READY, judge_process
from api.route_classes import JsonRoute, ThreadedRoute
from api.schemas.envelope import Envelope, build_envelope
from api.schemas.operations import DependenciesHealth, ProcessHealth, ServiceLinks, ServiceRecord
from api.state import StateOf
from core import clock
from core.errors import access, requests
from core.settings import Settings
from core.signed_urls import SEEN_HEADER
from services.accounts import page_paths

_SERVICE_DESCRIPTION = (
    "The back end of a newsletter and publishing platform: lists and their members, images, texts "
    "that go with a post, and credits. It sends no newsletters; it knows who gets them, and why."
)
_NOT_READY_DESCRIPTION = "The database is missing, or outdated, or the process is about to end"
# RFC 9116 recommends that ``security.txt`` expires in less than a year.
SECURITY_TXT_LIFETIME = timedelta(days=180)

router = APIRouter(tags=["Operations"], dependencies=[UNLIMITED], route_class=JsonRoute)


@router.get("/healthz")
async def check_health(request: Request, response: Response, state: StateOf) -> ProcessHealth:
    """The process is alive; its dependencies are not checked."""
    description = describe_caller(request, state.resources.settings)
    if description is not None:
        response.headers[SEEN_HEADER] = description
    return ProcessHealth(status="ok")


@router.get("/health", include_in_schema=False)
async def find_health() -> RedirectResponse:
    """Redirect to `/healthz`, because some people guess this path."""
    return RedirectResponse("/healthz")


@router.get(
    "/readyz",
    response_model=DependenciesHealth,
    responses={503: {"model": DependenciesHealth, "description": _NOT_READY_DESCRIPTION}},
)
async def check_readiness(state: StateOf) -> JSONResponse:
    """200 while this process can serve calls, else 503; with the status of each dependency.

    Only the database is needed, with its migrations done; without another one the status is
    `degraded`. That is at most a second old. A process that was asked to end says `ending`, and
    still serves for a few seconds.
    """
    dependencies = await state.readiness.check_dependencies()
    status = judge_process(dependencies, is_ending=state.drain.has_begun)
    is_ready = status in READY
    code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    headers = {} if is_ready else {"Retry-After": "1"}
    return JSONResponse({"status": status, "dependencies": dependencies}, code, headers)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "content": describe_text("text/plain", "pressroom_waiting_requests 0.0\n"),
            "description": "Prometheus text format",
        },
        **error_responses(access.AUTH_METRICS_TOKEN),
    },
)
async def read_metrics(request: Request, state: StateOf) -> Response:
    """Prometheus metrics, for the bearer of PRESSROOM_METRICS_TOKEN.

    Figures of a dependency that does not answer within a second are left out. A call that
    accepts OpenMetrics gets that, with the trace of one request in each bucket as an exemplar.
    """
    token = state.resources.settings.metrics_token
    scheme, _, sent_token = request.headers.get("authorization", "").partition(" ")
    expected_token = token.get_secret_value() if token else ""
    is_equal = secrets.compare_digest(sent_token.strip().encode(), expected_token.encode())
    if not expected_token or scheme.lower() != "bearer" or not is_equal:
        raise access.AUTH_METRICS_TOKEN()
    await state.deployment_metrics.refresh()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(REGISTRY), media_type=content_type)


service_router = APIRouter(tags=["Operations"], dependencies=[PUBLIC], route_class=JsonRoute)


@service_router.get(
    "/",
    response_model=Envelope[ServiceRecord],
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def read_service(request: Request, state: StateOf) -> Response:
    """What this is, in which version, and where to go on: a page where the caller accepts HTML."""
    record = _build_record(state.resources.settings)
    if "text/html" in request.headers.get("accept", ""):
        reply = render_page("service.html", service=record)
    else:
        reply = JSONResponse(build_envelope(record).model_dump(mode="json"))
    reply.headers["Vary"] = "Accept"
    return reply


def _build_record(settings: Settings) -> ServiceRecord:
    base = settings.public_base
    links = ServiceLinks(
        documentation=f"{base}{DOCS_PATH}" if settings.api_docs else None,
        openapi=f"{base}{DOCUMENT_PATH}" if settings.api_docs else None,
        console=f"{base}{CONSOLE_PATH}",
        account=f"{base}{page_paths.ACCOUNT_PATH}",
        health=f"{base}/healthz",
    )
    return ServiceRecord(
        name="Pressroom",
        description=_SERVICE_DESCRIPTION,
        version=version("pressroom"),
        contract=VERSIONS[0],
        contracts=list(VERSIONS),
        links=links,
    )


well_known_router = APIRouter(
    prefix="/.well-known",
    dependencies=[PUBLIC],
    include_in_schema=False,
    route_class=ThreadedRoute,
)


@well_known_router.get("/security.txt")
async def read_security_txt(state: StateOf) -> Response:
    """Name the contacts for vulnerabilities (RFC 9116); ``route.not_found`` without one."""
    settings = state.resources.settings
    if not settings.security_contacts:
        raise requests.ROUTE_NOT_FOUND()
    expires = (clock.now() + SECURITY_TXT_LIFETIME).date()
    fields = [("Contact", contact) for contact in settings.security_contacts]
    fields += [
        ("Expires", f"{expires}T00:00:00Z"),
        ("Preferred-Languages", "en"),
        ("Canonical", f"{settings.public_base}/.well-known/security.txt"),
    ]
    if settings.security_policy is not None:
        fields.append(("Policy", str(settings.security_policy)))
    text = "".join(f"{name}: {value}\n" for name, value in fields)
    return PlainTextResponse(text, headers={"Cache-Control": "public, max-age=86400"})


@well_known_router.get("/change-password")
async def find_password_page(state: StateOf) -> Response:
    """Redirect a password manager to the page for changing the password."""
    return redirect_to_path(state, page_paths.PASSWORD_PATH)
