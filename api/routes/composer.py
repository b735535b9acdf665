import time
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator

from api.auth.requirements import requires_scope
from api.composer_calls import ComposerCaller
from api.idempotency_keys import read_or_build_key
from api.openapi.declarations import (
    IDEMPOTENCY_KEY_PARAMETER,
    WAIT_PARAMETER,
    Responses,
    error_responses,
)
from api.preferences import PreferenceOf
from api.route_classes import JsonRoute
from api.schemas import composer as schemas
from api.schemas.envelope import Envelope, build_envelope
from api.state import StateOf
from core import ids
from core.errors import access, composer, money, requests
from core.errors.catalogue import ErrorType
from core.permissions import Permission
from core.scopes import Scope
from services.access.caller import Caller
from services.composer.photos import PhotoSearch, PhotoUse
from services.composer.requests import MetadataRequest
from services.composer.text.post import MetadataField

_routes = APIRouter(tags=["Composer"], route_class=JsonRoute)

Author = Annotated[Caller, requires_scope(Scope.COMPOSER, Permission.COMPOSER)]

_SOURCE_HEADER = "Pressroom-Source"
_PREFER_EXTRA = {"parameters": [WAIT_PARAMETER]}
_MAX_PHOTOS_PER_PAGE = 30

_QUEUE_ERRORS = (
    requests.QUEUE_TOO_MANY_OF_YOURS,
    requests.QUEUE_UNAVAILABLE,
    requests.QUEUE_OVERLOADED,
    requests.QUEUE_TOO_MANY_WAITERS,
)
_PHOTO_ERRORS = (
    composer.STOCKPHOTO_FAILED,
    composer.STOCKPHOTO_LIMIT_REACHED,
    composer.STOCKPHOTO_NOT_CONFIGURED,
    composer.STOCKPHOTO_UNAVAILABLE,
    *_QUEUE_ERRORS,
    composer.STOCKPHOTO_TOO_SLOW,
    requests.REQUEST_TOO_SLOW.fill(seconds=20),
)


def _describe_responses(source: str, *errors: ErrorType) -> Responses:
    """Return the documented responses of a composer route, including ``errors``."""
    header = {"description": source, "schema": {"type": "string"}, "example": "offline"}
    return {
        200: {"description": "Successful Response", "headers": {_SOURCE_HEADER: header}},
        **error_responses(
            access.QUOTA_EXCEEDED,
            *_QUEUE_ERRORS,
            requests.REQUEST_TOO_SLOW.fill(seconds=45),
            *errors,
        ),
    }


_WRITING_RESPONSES = {
    **_describe_responses(
        "The author of the text: `offline` or `openai/<model>`, followed by `; "
        "fallback` or `; cached` if applicable",
        composer.COMPOSER_POST_TOO_SLOW,
        composer.COMPOSER_POST_UNREADABLE,
    ),
    **error_responses(
        requests.IDEMPOTENCY_KEY_INVALID, money.CREDITS_INSUFFICIENT, money.CHARGE_IN_PROGRESS
    ),
}
_CHARGED_ONCE_DESCRIPTION = (
    "A unique key for the request. Requests with the same key and the same "
    "content within 24 hours are charged once."
)
_WRITING_EXTRA = {
    "parameters": [
        WAIT_PARAMETER,
        {**IDEMPOTENCY_KEY_PARAMETER, "description": _CHARGED_ONCE_DESCRIPTION},
    ]
}


@_routes.post(
    "/composer/metadata",
    summary="Generate metadata for a post",
    response_model=Envelope[schemas.GeneratedMetadata],
    openapi_extra=_WRITING_EXTRA,
    responses={
        **_WRITING_RESPONSES,
        **error_responses(requests.IDEMPOTENCY_KEY_INVALID, composer.COMPOSER_UNKNOWN_PART),
    },
)
async def generate_metadata(
    request: Request,
    state: StateOf,
    caller: Author,
    body: schemas.PostBody,
    preference: PreferenceOf,
    includes: Annotated[
        str,
        Query(
            description="A comma-separated list of the fields to generate: slug, summary and tags"
        ),
    ] = "slug,summary,tags",
) -> Response:
    """Generate a slug, a summary and tags for a post, in the language of the post.

    If the operator charges for texts from a language model, the scope `credit.full` is also
    required. Cached responses and texts that are generated without a language model are free.
    """
    # The parameter ``includes`` is documented as a single text, but a caller may also repeat the
    # parameter.
    del includes
    names = ",".join(request.query_params.getlist("includes")).split(",")
    try:
        fields = frozenset(MetadataField(name.strip()) for name in names if name.strip())
    except ValueError:
        raise composer.COMPOSER_UNKNOWN_PART(allowed=", ".join(MetadataField)) from None
    fields = fields or frozenset(MetadataField)
    calls = ComposerCaller(request, state, caller, preference)
    return await _write_metadata(calls, MetadataRequest(body.post(), fields))


@_routes.post(
    "/composer/generate-tweets",
    summary="Generate tweets about a post",
    response_model=Envelope[schemas.GeneratedTweets],
    openapi_extra=_WRITING_EXTRA,
    responses=_WRITING_RESPONSES,
)
async def generate_tweets(
    request: Request,
    state: StateOf,
    caller: Author,
    body: schemas.PostBody,
    preference: PreferenceOf,
) -> Response:
    """Generate tweets about a post. The tweets contain only links and mentions that the post
    contains.

    The price and the required scopes are the same as for metadata.
    """
    calls = ComposerCaller(request, state, caller, preference)
    return await _write_metadata(calls, MetadataRequest(body.post()))


async def _write_metadata(calls: ComposerCaller, metadata_request: MetadataRequest) -> Response:
    request = calls.request
    build_key = partial(read_or_build_key, request, calls.caller, [await request.body()])
    result = await calls.write_metadata(metadata_request, build_key)
    body = build_envelope(result.fields).model_dump()
    return JSONResponse(body, headers={_SOURCE_HEADER: result.source})


def _require_text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text.strip()


@_routes.get(
    "/composer/{provider}/photos/search",
    summary="Search stock photos",
    response_model=Envelope[schemas.PhotoPage],
    openapi_extra=_PREFER_EXTRA,
    responses={
        **_describe_responses(
            "The provider of the photos, followed by `; cached` for a cached response"
        ),
        **error_responses(composer.STOCKPHOTO_REFUSED, *_PHOTO_ERRORS),
    },
)
async def search_photos(
    request: Request,
    state: StateOf,
    caller: Author,
    provider: schemas.StockPhotoSource,
    query: Annotated[str, AfterValidator(_require_text), Query(description="The search text")],
    preference: PreferenceOf,
    page: Annotated[int, Query(ge=1, le=ids.MAX_ID)] = 1,
    limit: Annotated[
        int, Query(ge=1, le=_MAX_PHOTOS_PER_PAGE, description="The number of photos per page")
    ] = 10,
) -> Response:
    """Search stock photos. The response contains the provider's payload unchanged.

    Openverse returns at most 20 photos per page.
    """
    search = PhotoSearch(provider.named(state.photos.providers.default), query, page, limit)
    result = await ComposerCaller(request, state, caller, preference).search_photos(search)
    # Insert the photo provider's JSON text unchanged, so that no number loses digits.
    body = f'{{"data":{result.payload},"ts":{int(time.time())}}}'
    return Response(body, headers={_SOURCE_HEADER: result.source}, media_type="application/json")


@_routes.get(
    "/composer/{provider}/photos/download_url",
    summary="Retrieve the URL of a stock photo",
    openapi_extra=_PREFER_EXTRA,
    responses=error_responses(
        access.QUOTA_EXCEEDED,
        composer.STOCKPHOTO_ENDPOINT_NOT_ALLOWED,
        composer.STOCKPHOTO_NOT_FOUND,
        *_PHOTO_ERRORS,
    ),
)
async def locate_photo_file(
    request: Request,
    state: StateOf,
    caller: Author,
    provider: schemas.StockPhotoSource,
    endpoint: Annotated[
        str,
        Query(
            description="A URL from the search result: `links.download_location` for Unsplash, "
            "`detail_url` for Openverse"
        ),
    ],
    preference: PreferenceOf,
) -> Envelope[schemas.PhotoFile]:
    """Report the use of a photo to its provider, and return the URL of the photo's file."""
    chosen = provider.named(state.photos.providers.default)
    use = PhotoUse(chosen, state.photos.providers.get_provider(chosen).parse_endpoint(endpoint))
    url = await ComposerCaller(request, state, caller, preference).obtain_photo_url(use)
    return build_envelope(schemas.PhotoFile(url=url))


router = APIRouter()
router.include_router(_routes)
# Each composer route has a second path with the prefix ``/auxilia``, which isn't documented.
router.include_router(_routes, prefix="/auxilia", include_in_schema=False)
