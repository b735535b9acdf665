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
from api.middleware.admission import split_authorization
from api.middleware.versions import VERSIONS
from api.openapi.declarations import describe_text, error_responses
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
from services.subscriptions import page_urls

_SERVICE_DESCRIPTION = (
    "The back end of a newsletter platform. Pressroom manages lists and their members, images, "
    "texts and credits. Other programs send the newsletters."
)
_NOT_READY_DESCRIPTION = "The database is unavailable or outdated, or the process is shutting down."
# RFC 9116 recommends that ``security.txt`` expires in less than a year.
SECURITY_TXT_LIFETIME = timedelta(days=180)

router = APIRouter(tags=["Operations"], dependencies=[UNLIMITED], route_class=JsonRoute)


@router.get("/healthz", summary="Check liveness")
async def check_health(request: Request, response: Response, state: StateOf) -> ProcessHealth:
    """Check whether the process is running. Dependencies are not checked."""
    description = describe_caller(request, state.resources.settings)
    if description is not None:
        response.headers[SEEN_HEADER] = description
    return ProcessHealth(status="ok")


@router.get("/health", summary="Redirect to the liveness check", include_in_schema=False)
async def find_health() -> RedirectResponse:
    """Redirect to `/healthz`, because some people guess this path."""
    return RedirectResponse("/healthz")


@router.get(
    "/readyz",
    summary="Check readiness",
    response_model=DependenciesHealth,
    responses={503: {"model": DependenciesHealth, "description": _NOT_READY_DESCRIPTION}},
)
async def check_readiness(state: StateOf) -> JSONResponse:
    """Return 200 if the process can serve requests, and 503 otherwise. The response contains the
    status of each dependency.

    Readiness requires only a database with all migrations. If another dependency is missing, or if
    the disk of a store is full, the status is `degraded`. The status is at most one second old. A
    process that is shutting down reports `ending`, and still serves requests for a few seconds.
    """
    dependencies = await state.readiness.check_dependencies()
    status = judge_process(dependencies, is_ending=state.drain.has_begun)
    is_ready = status in READY
    code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    headers = {} if is_ready else {"Retry-After": "1"}
    return JSONResponse({"status": status, "dependencies": dependencies}, code, headers)


@router.get(
    "/metrics",
    summary="Retrieve metrics",
    response_class=Response,
    responses={
        200: {
            "content": describe_text("text/plain", "pressroom_waiting_requests 0.0\n"),
            "description": "Metrics in the Prometheus text format",
        },
        **error_responses(access.AUTH_METRICS_TOKEN),
    },
)
async def read_metrics(request: Request, state: StateOf) -> Response:
    """Retrieve Prometheus metrics. Send PRESSROOM_METRICS_TOKEN as the bearer token.

    Metrics of a dependency that doesn't respond within a second are omitted. If the request accepts
    OpenMetrics, the response contains trace ids as exemplars of the histogram buckets.
    """
    token = state.resources.settings.metrics_token
    scheme, sent_token = split_authorization(request.headers.get("authorization", ""))
    expected_token = token.get_secret_value() if token else ""
    is_equal = secrets.compare_digest(sent_token.encode(), expected_token.encode())
    if not expected_token or scheme != "bearer" or not is_equal:
        raise access.AUTH_METRICS_TOKEN()
    await state.deployment_metrics.refresh()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(REGISTRY), media_type=content_type)


service_router = APIRouter(tags=["Operations"], dependencies=[PUBLIC], route_class=JsonRoute)


@service_router.get(
    "/",
    summary="Retrieve service information",
    response_model=Envelope[ServiceRecord],
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def read_service(request: Request, state: StateOf) -> Response:
    """Retrieve the name and version of the service, and links. The response is HTML if the request
    accepts HTML.
    """
    settings = state.resources.settings
    record = _build_record(settings)
    if "text/html" in request.headers.get("accept", ""):
        reply = render_page(
            "service.html",
            service=record,
            register_url=page_paths.page_url(settings, page_paths.REGISTER_PATH),
            ask_url=settings.pages_base + page_urls.ASK_PREFERENCES_PATH,
        )
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


@well_known_router.get("/security.txt", summary="Retrieve security contacts")
async def read_security_txt(state: StateOf) -> Response:
    """Retrieve the contacts for security reports (RFC 9116). Returns ``route.not_found`` if no
    contact is configured.
    """
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


@well_known_router.get("/change-password", summary="Redirect to the password page")
async def find_password_page(state: StateOf) -> Response:
    """Redirect a password manager to the page for changing the password."""
    return redirect_to_path(state, page_paths.PASSWORD_PATH)
