import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator

from api.access.requirements import requires_scope
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import MONEY, RECORDS, REQUESTS
from api.middleware.body_limits import body_of
from api.openapi import IDEMPOTENCY_KEY_PARAMETER, WAIT_PARAMETER, Responses, refuses
from api.parameters import Preference, PreferenceOf, StateOf, named_call
from api.schemas import composer as schemas
from api.schemas.envelope import Envelope, envelope
from api.state import State
from api.waiting.disconnects import while_connected
from core import ids
from core.refusals import composer, requests
from core.refusals.access import QUOTA_EXCEEDED
from core.refusals.money import CHARGE_IN_PROGRESS, CREDITS_INSUFFICIENT
from core.refusals.requests import IDEMPOTENCY_KEY_INVALID
from core.scopes import Scope
from services.access import quotas
from services.access.caller import Caller
from services.composer import call_charges
from services.composer.call_charges import CallCharge
from services.composer.metadata_requests import MetadataRequest, MetadataResult
from services.composer.photos import PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.post import MetadataField
from services.composer.worker_requests import WorkerRequest

_routes = APIRouter(tags=["Composer"], route_class=JsonRoute)

Author = Annotated[Caller, requires_scope(Scope.COMPOSER)]

_SOURCE = "Pressroom-Source"
_PREFER = {"parameters": [WAIT_PARAMETER]}
_MAX_PHOTOS_PER_PAGE = 30

_QUEUE_REFUSALS = (
    requests.QUEUE_TOO_MANY_OF_YOURS,
    requests.QUEUE_UNAVAILABLE,
    requests.QUEUE_OVERLOADED,
    requests.QUEUE_TOO_MANY_WAITERS,
)
_PHOTO_REFUSALS = (
    composer.STOCKPHOTO_FAILED,
    composer.STOCKPHOTO_LIMIT_REACHED,
    composer.STOCKPHOTO_NOT_CONFIGURED,
    composer.STOCKPHOTO_UNAVAILABLE,
    *_QUEUE_REFUSALS,
    composer.STOCKPHOTO_TOO_SLOW,
    requests.REQUEST_TOO_SLOW.filled(seconds=20),
)


def _answers(source: str) -> Responses:
    """What a reply says beside its data, and how the wait for it may end."""
    header = {"description": source, "schema": {"type": "string"}, "example": "offline"}
    return {
        200: {"description": "Successful Response", "headers": {_SOURCE: header}},
        **refuses(
            QUOTA_EXCEEDED,
            *_QUEUE_REFUSALS,
            requests.REQUEST_TOO_SLOW.filled(seconds=45),
        ),
    }


_WRITTEN = {
    **_answers("Who wrote it: `offline` or `openai/<model>`; with `; fallback` or `; cached`"),
    **refuses(IDEMPOTENCY_KEY_INVALID, CREDITS_INSUFFICIENT, CHARGE_IN_PROGRESS),
}
_CHARGED_ONCE = "Calls with the same key and request within 24 hours are charged once."
_WRITING = {
    "parameters": [WAIT_PARAMETER, {**IDEMPOTENCY_KEY_PARAMETER, "description": _CHARGED_ONCE}]
}


@_routes.post(
    "/composer/metadata",
    response_model=Envelope[schemas.GeneratedMetadata],
    openapi_extra=_WRITING,
    responses={
        **_WRITTEN,
        **refuses(IDEMPOTENCY_KEY_INVALID, composer.COMPOSER_UNKNOWN_PART),
    },
)
async def generate_metadata(
    request: Request,
    state: StateOf,
    caller: Author,
    body: schemas.PostBody,
    preference: PreferenceOf,
    includes: Annotated[
        str, Query(description="Which of slug, summary and tags, separated by commas")
    ] = "slug,summary,tags",
) -> Response:
    """Write a slug, a summary and tags for a post, in the post's own language.

    Where the operator has set a price for calls that a language model answers, this needs the scope
    `credit.full` too. An answer that is cached or written without the model costs nothing.
    """
    del includes  # Documented as one text; a caller may also repeat it.
    named = ",".join(request.query_params.getlist("includes")).split(",")
    try:
        wanted = frozenset(MetadataField(name.strip()) for name in named if name.strip())
    except ValueError:
        raise composer.COMPOSER_UNKNOWN_PART(allowed=", ".join(MetadataField)) from None
    wanted = wanted or frozenset(MetadataField)
    return await _written(request, state, caller, MetadataRequest(body.post(), wanted), preference)


@_routes.post(
    "/composer/generate-tweets",
    response_model=Envelope[schemas.GeneratedTweets],
    openapi_extra=_WRITING,
    responses=_WRITTEN,
)
async def generate_tweets(
    request: Request,
    state: StateOf,
    caller: Author,
    body: schemas.PostBody,
    preference: PreferenceOf,
) -> Response:
    """Write tweets about a post, with no link or mention that the post doesn't have.

    Costs what metadata costs, and needs the same scopes.
    """
    return await _written(request, state, caller, MetadataRequest(body.post()), preference)


async def _written(
    request: Request,
    state: State,
    caller: Caller,
    asked: MetadataRequest,
    preference: Preference,
) -> Response:
    call_charges.require_spender(state.resources.settings, caller)
    await _count_call(state, caller)
    key, result = await REQUESTS.run(state.metadata_cache.look_up, asked)
    if result is None:
        charge = await _charge(request, state, caller)
        answer = await _ask_worker(request, state, caller, asked, preference, same=key)
        result = MetadataResult.from_payload(answer)
        if charge is not None and result.is_fresh_of_model:
            await MONEY.run(charge.settle, asked, result)
            await REQUESTS.run(state.metadata_cache.keep, key, result)
    body = envelope(result.fields).model_dump()
    return JSONResponse(body, headers={_SOURCE: result.source})


async def _charge(request: Request, state: State, caller: Caller) -> CallCharge | None:
    """What the call costs if a language model answers it; raises ``credits.insufficient``."""
    price = call_charges.price_of_call(state.resources.settings)
    if price is None:
        return None
    named = await REQUESTS.run(named_call, request, caller, [await request.body()])
    charge = CallCharge.of_call(state.resources, price, named)
    await MONEY.run(charge.require_balance)
    return charge


async def _count_call(state: State, caller: Caller) -> None:
    resources = state.resources
    await RECORDS.run(
        quotas.count_composer_call, resources.database, resources.settings, caller.user_id
    )


async def _ask_worker(
    request: Request,
    state: State,
    caller: Caller,
    asked: WorkerRequest,
    preference: Preference,
    *,
    same: str | None = None,
) -> dict[str, Any]:
    body_of(request.scope).keep()
    seconds = preference.seconds_at_most(asked.max_seconds)
    call = state.worker_calls.call(
        asked.kind,
        asked.to_payload(),
        seconds=seconds,
        owner_id=caller.user_id,
        same=same,
    )
    return await while_connected(request.receive, call)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text.strip()


@_routes.get(
    "/composer/{provider}/photos/search",
    response_model=Envelope[schemas.PhotoPage],
    openapi_extra=_PREFER,
    responses={
        **_answers("The provider; with `; cached`"),
        **refuses(composer.STOCKPHOTO_REFUSED, *_PHOTO_REFUSALS),
    },
)
async def search_photos(
    request: Request,
    state: StateOf,
    caller: Author,
    provider: schemas.StockPhotoSource,
    query: Annotated[str, AfterValidator(_not_blank), Query(description="What is searched for")],
    preference: PreferenceOf,
    page: Annotated[int, Query(ge=1, le=ids.MAX_ID)] = 1,
    limit: Annotated[
        int, Query(ge=1, le=_MAX_PHOTOS_PER_PAGE, description="Photos on a page")
    ] = 10,
) -> Response:
    """Search stock photos. The data is the provider's payload, unchanged.

    Openverse gives at most 20 photos on a page.
    """
    await _count_call(state, caller)
    search = PhotoSearch(provider.named(state.photos.providers.default), query, page, limit)
    key, result = await REQUESTS.run(state.photos.look_up, search)
    if result is None:
        answer = await _ask_worker(request, state, caller, search, preference, same=key)
        result = PhotoSearchResult.from_payload(answer)
    # The envelope around the provider's own text: no number or order in it changes.
    body = f'{{"data":{result.payload},"ts":{int(time.time())}}}'
    return Response(body, headers={_SOURCE: result.source}, media_type="application/json")


@_routes.get(
    "/composer/{provider}/photos/download_url",
    openapi_extra=_PREFER,
    responses=refuses(
        QUOTA_EXCEEDED,
        composer.STOCKPHOTO_ENDPOINT_NOT_ALLOWED,
        composer.STOCKPHOTO_NOT_FOUND,
        *_PHOTO_REFUSALS,
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
            description="Of the photo, as the search gave it: links.download_location at Unsplash, "
            "detail_url at Openverse"
        ),
    ],
    preference: PreferenceOf,
) -> Envelope[schemas.PhotoFile]:
    """Tell the provider that a photo is used, and learn the address of its file."""
    chosen = provider.named(state.photos.providers.default)
    use = PhotoUse(chosen, state.photos.providers.named(chosen).photo_at(endpoint))
    await _count_call(state, caller)
    answer = await _ask_worker(request, state, caller, use, preference)
    return envelope(schemas.PhotoFile(url=answer["url"]))


router = APIRouter()
router.include_router(_routes)
# The same routes under the platform's prefix; the document has each once.
router.include_router(_routes, prefix="/auxilia", include_in_schema=False)
