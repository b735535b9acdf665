"""What a person or a program finds who opens the address alone."""

from importlib.metadata import version

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from api.access.requirements import PUBLIC
from api.bodies.json_route import JsonRoute
from api.middleware.versions import VERSIONS
from api.pages.api_docs import DOCS_PATH, DOCUMENT_PATH
from api.pages.frame import page
from api.parameters import StateOf
from api.schemas.envelope import Envelope, envelope
from api.schemas.operations import ServiceLinks, ServiceRecord
from core.settings import Settings
from services.people import page_urls

router = APIRouter(tags=["Operations"], dependencies=[PUBLIC], route_class=JsonRoute)

_DESCRIPTION = (
    "The back end of a newsletter and publishing platform: lists and their members, images, texts "
    "that go with a post, and credits. It sends no newsletters; it knows who gets them, and why."
)


@router.get(
    "/",
    response_model=Envelope[ServiceRecord],
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def read_service(request: Request, state: StateOf) -> Response:
    """What this is, in which version, and where to go on: a page where the caller accepts HTML."""
    record = _record(state.resources.settings)
    if "text/html" in request.headers.get("accept", ""):
        reply = page("service.html", service=record)
    else:
        reply = JSONResponse(envelope(record).model_dump(mode="json"))
    reply.headers["Vary"] = "Accept"
    return reply


def _record(settings: Settings) -> ServiceRecord:
    base = settings.public_base
    links = ServiceLinks(
        documentation=f"{base}{DOCS_PATH}" if settings.api_docs else None,
        openapi=f"{base}{DOCUMENT_PATH}" if settings.api_docs else None,
        account=f"{base}{page_urls.ACCOUNT_PATH}",
        health=f"{base}/healthz",
    )
    return ServiceRecord(
        name="Pressroom",
        description=_DESCRIPTION,
        version=version("pressroom"),
        contract=VERSIONS[0],
        contracts=list(VERSIONS),
        links=links,
    )
