"""The page on which a user writes texts for a post with the composer, and searches photos."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from html import escape

from fastapi import Request
from fastapi.responses import Response

from api.composer_calls import ComposerCaller
from api.console.assets import CONSOLE_PATH
from api.console.console_display import format_credits
from api.console.plan_notices import find_plan_notice
from api.console.requests import Console, ConsoleForm, ConsoleRequest, build_router
from api.console.typed_forms import TypedForm, parse_body
from api.errors import STATUS_OF
from api.limits.bulkheads import RECORDS, REQUESTS
from api.schemas.composer import PostBody
from api.state import State
from core.errors import DomainError, Kind
from core.errors.money import CREDITS_INSUFFICIENT
from core.settings.notations import PlanQuota
from integrations.stock_photos.port import FoundPhoto, PhotoCredit, PhotoProviderName
from services.composer import call_charges
from services.composer.photos import PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.requests import OFFLINE, MetadataRequest
from services.composer.text.post import MetadataField
from services.jobs.idempotency import IdempotencyKey

PATH = f"{CONSOLE_PATH}/composer"
router = build_router(PATH)

TWEETS = "tweets"
# The label of each text that the composer writes, by the text's name.
PART_LABELS = {
    **{field.value: field.value.capitalize() for field in MetadataField},
    TWEETS: "Tweets",
}
# Hidden form fields with this suffix state who wrote a text, such as a language model.
WRITER_SUFFIX = "_by"
# The prefix of idempotency keys for composer calls by the console.
_ROUTE = "console"
PHOTOS_ON_PAGE = 12
MAX_PHOTO_PAGE = 1_000
MAX_SEARCH_CHARACTERS = 200
PROVIDER_LABELS = {PhotoProviderName.UNSPLASH: "Unsplash", PhotoProviderName.OPENVERSE: "Openverse"}
_NO_POST = TypedForm(
    errors={"content": "Enter a title or paste a post."},
    problem="The post is empty.",
    status=422,
)
_NO_SEARCH_TEXT = TypedForm(
    errors={"words": "Enter a few words that describe the photo."},
    problem="The search is empty.",
    status=422,
)


@dataclass(frozen=True)
class PhotoFinds:
    """A page of search results from a stock photo provider."""

    search: PhotoSearch
    photos: list[FoundPhoto]

    @property
    def has_more(self) -> bool:
        return len(self.photos) >= PHOTOS_ON_PAGE and self.search.page < MAX_PHOTO_PAGE


@dataclass(frozen=True)
class _Outcome:
    """The result of pressing a button in the composer.

    Attributes:
        fields: maps the names of form fields to their new values.
        invalid_form: the form with error messages, or ``None`` if the user's input was valid.
        finds: the photos that the search returned, or ``None`` if the user didn't search for
            photos.
    """

    fields: Mapping[str, str]
    invalid_form: TypedForm | None = None
    error: DomainError | None = None
    finds: PhotoFinds | None = None


@router.get("")
def show_composer(console: Console) -> Response:
    return _render_composer(console, TypedForm(), None, is_of_photos=False)


@router.post("")
async def compose_post(request: Request, console: ConsoleForm) -> Response:
    """Write texts for a post or search for photos, depending on which button was pressed."""
    calls = ComposerCaller(request, console.state, console.caller)
    inputs = console.form
    is_writing = "write" in inputs
    outcome = await (_write_parts if is_writing else _find_photos)(calls, inputs)
    finds = outcome.finds or await _read_cached_finds(console.state, inputs)
    updated_console = replace(console, form={**inputs, **outcome.fields})
    return await RECORDS.run(
        partial(_render_outcome, updated_console, outcome, finds, is_of_photos=not is_writing)
    )


async def _write_parts(calls: ComposerCaller, inputs: Mapping[str, str]) -> _Outcome:
    """Write one text for a post, such as the summary, or all texts in parallel."""
    if not (inputs.get("title", "").strip() or inputs.get("content", "").strip()):
        return _Outcome({}, invalid_form=_NO_POST)
    # Remove carriage returns, because browsers send CR LF at the end of every line.
    content = inputs.get("content", "").replace("\r\n", "\n")
    try:
        values = {"title": inputs.get("title", ""), "content": content}
        post = parse_body(PostBody, values).post()
    except DomainError as error:
        return _Outcome({}, error=error)
    part = inputs["write"]
    tweets = MetadataRequest(post)
    if part == TWEETS:
        requests = [tweets]
    elif part in PART_LABELS:
        requests = [MetadataRequest(post, frozenset({MetadataField(part)}))]
    else:
        requests = [MetadataRequest(post, frozenset(MetadataField)), tweets]
    user_id = calls.caller.user_id
    outcomes = await asyncio.gather(
        *(calls.write_metadata(each, partial(_build_call_key, user_id, each)) for each in requests),
        return_exceptions=True,
    )
    fields: dict[str, str] = {}
    first_error: DomainError | None = None
    for outcome in outcomes:
        if isinstance(outcome, DomainError):
            first_error = first_error or outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            fields |= outcome.fields
            fields |= {f"{name}{WRITER_SUFFIX}": outcome.source for name in outcome.fields}
    return _Outcome(fields, error=first_error)


def _build_call_key(user_id: int, metadata_request: MetadataRequest) -> IdempotencyKey:
    """Return the idempotency key for writing texts for a post.

    The idempotency key depends only on the user, the post and the requested texts. A user who
    requests the same texts for the same post twice is charged only once.
    """
    digest = hashlib.sha256()
    for text in (
        ",".join(sorted(metadata_request.fields)),
        metadata_request.post.title,
        metadata_request.post.content,
    ):
        # Hash the length before each text, so that "ab" and "c" have a different hash than "a" and
        # "bc".
        content = text.encode()
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return IdempotencyKey(user_id, _ROUTE, f"{_ROUTE}-{digest.hexdigest()[:32]}", digest.digest())


async def _find_photos(calls: ComposerCaller, inputs: Mapping[str, str]) -> _Outcome:
    """Search for photos, or return the URL of the photo that the user chose."""
    state = calls.state
    try:
        if endpoint := inputs.get("use"):
            name = _read_provider(state, inputs.get("found_provider", ""))
            photo = state.photos.providers.get_provider(name).parse_endpoint(endpoint)
            url = await calls.obtain_photo_url(PhotoUse(name, photo))
            return _Outcome({"used": endpoint, "used_url": url})
        if "page" in inputs:
            page = inputs["page"] or inputs.get("found_page", "")
            search = _read_last_search(state, inputs, page)
        else:
            search_text = " ".join(inputs.get("words", "").split())[:MAX_SEARCH_CHARACTERS]
            # Pressing Enter in any field submits the form, so search photos only if the search text
            # has changed.
            is_repeated = "enter" in inputs and search_text == inputs.get("found_words")
            search = None
            if search_text and not is_repeated:
                search = _build_search(state, search_text, inputs.get("provider", ""), "1")
        if search is None:
            return _Outcome({}, invalid_form=None if "enter" in inputs else _NO_SEARCH_TEXT)
        photo_finds = _build_finds(state, search, await calls.search_photos(search))
    except DomainError as error:
        return _Outcome({}, error=error)
    fields = {
        # Hidden fields contain the last search, so that the next response can show the same photos.
        "found_words": search.query,
        "found_provider": str(search.provider),
        "found_page": str(search.page),
        "used": "",
        "used_url": "",
    }
    return _Outcome(fields, finds=photo_finds)


def _build_finds(state: State, search: PhotoSearch, result: PhotoSearchResult) -> PhotoFinds:
    provider = state.photos.providers.get_provider(search.provider)
    return PhotoFinds(search, provider.parse_photos(result.payload))


def _read_provider(state: State, provider: str) -> PhotoProviderName:
    names = state.photos.providers.names
    return next((name for name in names if name == provider), names[0])


def _build_search(state: State, search_text: str, provider: str, page: str) -> PhotoSearch:
    is_number = page.isascii() and page.isdigit() and len(page) <= len(str(MAX_PHOTO_PAGE))
    number = min(max(int(page), 1), MAX_PHOTO_PAGE) if is_number else 1
    return PhotoSearch(_read_provider(state, provider), search_text, number, PHOTOS_ON_PAGE)


def _read_last_search(state: State, inputs: Mapping[str, str], page: str) -> PhotoSearch | None:
    search_text = inputs.get("found_words", "")
    return (
        _build_search(state, search_text, inputs.get("found_provider", ""), page)
        if search_text
        else None
    )


async def _read_cached_finds(state: State, inputs: Mapping[str, str]) -> PhotoFinds | None:
    """Return the photos of the user's last search, or ``None`` if they aren't cached."""
    search = _read_last_search(state, inputs, inputs.get("found_page", ""))
    if search is None:
        return None
    _, cached = await REQUESTS.run(state.photos.look_up, search)
    return None if cached is None else _build_finds(state, search, cached)


def _render_outcome(
    console: ConsoleRequest, outcome: _Outcome, finds: PhotoFinds | None, *, is_of_photos: bool
) -> Response:
    form = TypedForm(console.form)
    error = outcome.error
    if outcome.invalid_form is not None:
        form = replace(outcome.invalid_form, typed=console.form)
    elif error is not None and error.kind is Kind.NOT_FOUND:
        # The error means that the photo provider has deleted the photo. Show the form with the
        # typed texts, so that no text is lost.
        form = TypedForm(console.form, problem=error.message, status=STATUS_OF[error.kind])
    elif error is not None:
        form = console.add_error(error)
        if error.code == CREDITS_INSUFFICIENT.code:
            cost, balance = (float(error.facts[name]) for name in ("needed", "balance_credit"))
            problem = (
                f"This costs {format_credits(cost)} credits, "
                f"but you have only {format_credits(balance)}."
            )
            form = replace(form, problem=problem)
    return _render_composer(console, form, finds, is_of_photos=is_of_photos)


def _render_composer(
    console: ConsoleRequest, form: TypedForm, finds: PhotoFinds | None, *, is_of_photos: bool
) -> Response:
    price = call_charges.get_call_price(console.state.resources.settings)
    providers = console.state.photos.providers
    used_endpoint = form.typed.get("used", "")
    used_url = form.typed.get("used_url", "")
    photos = [] if finds is None else finds.photos
    with console.unit_of_work() as uow:
        notice = find_plan_notice(uow, console.user_id, PlanQuota.COMPOSER_PER_DAY)
    used_photo = next((photo for photo in photos if photo.endpoint == used_endpoint), None)
    origins = [] if finds is None else providers.get_provider(finds.search.provider).image_origins
    return console.render_page(
        "composer.html",
        status=form.status,
        other_sources={"img-src": " ".join(origins)} if photos else {},
        form=form,
        is_of_photos=is_of_photos,
        refusal=notice,
        parts=PART_LABELS,
        writers={
            name: describe_writer(source)
            for name in PART_LABELS
            if (source := form.typed.get(f"{name}{WRITER_SUFFIX}"))
        },
        price=price,
        price_of_all=None if price is None else 2 * price,
        providers=[(name.value, PROVIDER_LABELS[name]) for name in providers.names],
        finds=finds,
        provider_name=None if finds is None else PROVIDER_LABELS[finds.search.provider],
        credits={photo.endpoint: CreditLine(photo.credit) for photo in photos},
        used_url=used_url,
        used_figure=build_figure(used_photo, used_url) if used_photo else None,
    )


def describe_writer(source: str) -> str:
    writer, *details = source.split("; ")
    is_offline = writer == OFFLINE
    text = "without a language model" if is_offline else f"by the model {writer.partition('/')[2]}"
    if "fallback" in details:
        text += ", because the model didn’t answer"
    return f"Written {'earlier ' if 'cached' in details else ''}{text}."


@dataclass(frozen=True)
class CreditLine:
    """HTML that credits the author of a photo."""

    credit: PhotoCredit

    def __html__(self) -> str:
        # Escape the provider's texts, because the template inserts the HTML unescaped.
        credit = self.credit
        title = f"“{credit.title}”" if credit.title else "Photo"
        author = _build_link(credit.author, credit.author_url)
        line = f"{_build_link(title, credit.title_url)} by {author}"
        if credit.provider:
            line += f" on {_build_link(credit.provider, credit.provider_url)}"
        if credit.licence:
            line += f", {_build_link(credit.licence, credit.licence_url)}"
        return line


def build_figure(photo: FoundPhoto, url: str) -> str:
    has_size = photo.width and photo.height
    size = f' width="{photo.width}" height="{photo.height}"' if has_size else ""
    image = f'<img src="{escape(url)}" alt="{escape(photo.shows)}"{size}>'
    credit = CreditLine(photo.credit).__html__()
    return f"<figure>{image}<figcaption>{credit}</figcaption></figure>"


def _build_link(text: str, url: str | None) -> str:
    return escape(text) if url is None else f'<a href="{escape(url)}">{escape(text)}</a>'
