"""The composer: a post goes in; a slug, a summary, tags, tweets and photos come out."""

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
from api.console.requests import Console, ConsoleForm, ConsoleRequest, build_router
from api.console.typed_forms import TypedForm, parse_body
from api.errors import STATUS_OF
from api.limits.bulkheads import RECORDS, REQUESTS
from api.schemas.composer import PostBody
from api.state import State
from core.errors import DomainError, Kind
from core.errors.money import CREDITS_INSUFFICIENT
from integrations.stock_photos.port import FoundPhoto, PhotoCredit, PhotoProviderName
from services.composer import call_charges
from services.composer.photos import PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.requests import OFFLINE, MetadataRequest
from services.composer.text.post import MetadataField
from services.jobs.idempotency import IdempotencyKey

PATH = f"{CONSOLE_PATH}/composer"
router = build_router(PATH)

TWEETS = "tweets"
# Each part that the composer writes, with the label of its button and field.
PARTS = {
    **{field.value: field.value.capitalize() for field in MetadataField},
    TWEETS: "Tweets",
}
# The end of the name of the form field that says who wrote a part.
BY = "_by"
_ROUTE = "console"
PHOTOS_ON_PAGE = 12
MAX_PHOTO_PAGE = 1_000
MAX_SEARCH_CHARACTERS = 200
PROVIDERS = {PhotoProviderName.UNSPLASH: "Unsplash", PhotoProviderName.OPENVERSE: "Openverse"}
_NO_POST = TypedForm(
    errors={"content": "Paste a post, or give it a title."},
    problem="There is no post yet.",
    status=422,
)
_NO_WORDS = TypedForm(
    errors={"words": "Say in a few words what the photo shows."},
    problem="There are no words to look for.",
    status=422,
)


@dataclass(frozen=True)
class PhotoFinds:
    search: PhotoSearch
    photos: list[FoundPhoto]

    @property
    def has_more(self) -> bool:
        return len(self.photos) >= PHOTOS_ON_PAGE and self.search.page < MAX_PHOTO_PAGE


@dataclass(frozen=True)
class _Outcome:
    """The result of the button that was pressed.

    Attributes:
        fields: those of the form that it changed.
        wrong: the form with its mistakes, where these kept the work from being done.
        finds: the photos to show, where it found some.
    """

    fields: Mapping[str, str]
    wrong: TypedForm | None = None
    error: DomainError | None = None
    finds: PhotoFinds | None = None


@router.get("")
def show_composer(console: Console) -> Response:
    return _page(console, TypedForm(), None, is_of_photos=False)


@router.post("")
async def compose(request: Request, console: ConsoleForm) -> Response:
    """Do what the button asks for, and show it with all that was typed."""
    calls = ComposerCaller(request, console.state, console.caller)
    typed = console.form
    is_writing = "write" in typed
    outcome = await (_write if is_writing else _look_for_photos)(calls, typed)
    finds = outcome.finds or await _found_before(console.state, typed)
    kept = replace(console, form={**typed, **outcome.fields})
    return await RECORDS.run(partial(_answer, kept, outcome, finds, is_of_photos=not is_writing))


async def _write(calls: ComposerCaller, typed: Mapping[str, str]) -> _Outcome:
    """Have one part written, or all of them at the same time."""
    if not (typed.get("title", "").strip() or typed.get("content", "").strip()):
        return _Outcome({}, wrong=_NO_POST)
    # Browsers send CR LF at the end of each line.
    content = typed.get("content", "").replace("\r\n", "\n")
    try:
        values = {"title": typed.get("title", ""), "content": content}
        post = parse_body(PostBody, values).post()
    except DomainError as error:
        return _Outcome({}, error=error)
    part, tweets = typed["write"], MetadataRequest(post)
    if part == TWEETS:
        asked = [tweets]
    elif part in PARTS:
        asked = [MetadataRequest(post, frozenset({MetadataField(part)}))]
    else:
        asked = [MetadataRequest(post, frozenset(MetadataField)), tweets]
    user_id = calls.caller.user_id
    outcomes = await asyncio.gather(
        *(calls.written(each, partial(_call_name, user_id, each)) for each in asked),
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
            fields |= {f"{name}{BY}": outcome.source for name in outcome.fields}
    return _Outcome(fields, error=first_error)


def _call_name(user_id: int, asked: MetadataRequest) -> IdempotencyKey:
    """Return one name for all presses of a button for one text: the call is charged once."""
    digest = hashlib.sha256()
    for text in (",".join(sorted(asked.fields)), asked.post.title, asked.post.content):
        # The length before each part keeps ("ab", "c") apart from ("a", "bc").
        content = text.encode()
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return IdempotencyKey(user_id, _ROUTE, f"{_ROUTE}-{digest.hexdigest()[:32]}", digest.digest())


async def _look_for_photos(calls: ComposerCaller, typed: Mapping[str, str]) -> _Outcome:
    """Find photos, or, by the button of one of them, get its file."""
    state = calls.state
    try:
        if endpoint := typed.get("use"):
            name = _provider_of(state, typed.get("found_provider", ""))
            photo = state.photos.providers.named(name).photo_at(endpoint)
            url = await calls.url_of_photo(PhotoUse(name, photo))
            return _Outcome({"used": endpoint, "used_url": url})
        if "page" in typed:
            page = typed["page"] or typed.get("found_page", "")
            search = _search_before(state, typed, page)
        else:
            words = " ".join(typed.get("words", "").split())[:MAX_SEARCH_CHARACTERS]
            # Enter in another field starts no search.
            is_new = words and not ("enter" in typed and words == typed.get("found_words"))
            search = _search_of(state, words, typed.get("provider", ""), "1") if is_new else None
        if search is None:
            return _Outcome({}, wrong=None if "enter" in typed else _NO_WORDS)
        finds = _finds(state, search, await calls.photos(search))
    except DomainError as error:
        return _Outcome({}, error=error)
    fields = {
        # Let the same photos be shown again.
        "found_words": search.query,
        "found_provider": str(search.provider),
        "found_page": str(search.page),
        "used": "",
        "used_url": "",
    }
    return _Outcome(fields, finds=finds)


def _finds(state: State, search: PhotoSearch, result: PhotoSearchResult) -> PhotoFinds:
    provider = state.photos.providers.named(search.provider)
    return PhotoFinds(search, provider.found_in(result.payload))


def _provider_of(state: State, typed: str) -> PhotoProviderName:
    names = state.photos.providers.names
    return next((name for name in names if name == typed), names[0])


def _search_of(state: State, words: str, provider: str, page: str) -> PhotoSearch:
    is_number = page.isascii() and page.isdigit() and len(page) <= len(str(MAX_PHOTO_PAGE))
    number = min(max(int(page), 1), MAX_PHOTO_PAGE) if is_number else 1
    return PhotoSearch(_provider_of(state, provider), words, number, PHOTOS_ON_PAGE)


def _search_before(state: State, typed: Mapping[str, str], page: str) -> PhotoSearch | None:
    words = typed.get("found_words", "")
    return _search_of(state, words, typed.get("found_provider", ""), page) if words else None


async def _found_before(state: State, typed: Mapping[str, str]) -> PhotoFinds | None:
    """Return the photos that the page showed already, if they are cached: no provider is asked."""
    search = _search_before(state, typed, typed.get("found_page", ""))
    if search is None:
        return None
    _, cached = await REQUESTS.run(state.photos.look_up, search)
    return None if cached is None else _finds(state, search, cached)


def _answer(
    console: ConsoleRequest, outcome: _Outcome, finds: PhotoFinds | None, *, is_of_photos: bool
) -> Response:
    form, error = TypedForm(console.form), outcome.error
    if outcome.wrong is not None:
        form = replace(outcome.wrong, typed=console.form)
    elif error is not None and error.kind is Kind.NOT_FOUND:
        # A photo is gone: nothing that was typed is lost by it.
        form = TypedForm(console.form, problem=error.message, status=STATUS_OF[error.kind])
    elif error is not None:
        form = console.add_error(error)
        if error.code == CREDITS_INSUFFICIENT.code:
            cost, balance = (float(error.facts[name]) for name in ("needed", "balance_credit"))
            problem = (
                f"This costs {format_credits(cost)} credits, "
                f"and you have {format_credits(balance)}."
            )
            form = replace(form, problem=problem)
    return _page(console, form, finds, is_of_photos=is_of_photos)


def _page(
    console: ConsoleRequest, form: TypedForm, finds: PhotoFinds | None, *, is_of_photos: bool
) -> Response:
    price = call_charges.get_call_price(console.state.resources.settings)
    providers = console.state.photos.providers
    used, used_url = form.typed.get("used", ""), form.typed.get("used_url", "")
    photos = [] if finds is None else finds.photos
    used_photo = next((photo for photo in photos if photo.endpoint == used), None)
    origins = [] if finds is None else providers.named(finds.search.provider).image_origins
    return console.render_page(
        "composer.html",
        status=form.status,
        other_sources={"img-src": " ".join(origins)} if photos else {},
        form=form,
        is_of_photos=is_of_photos,
        parts=PARTS,
        writers={
            name: writer_words(source)
            for name in PARTS
            if (source := form.typed.get(f"{name}{BY}"))
        },
        price=price,
        price_of_all=None if price is None else 2 * price,
        providers=[(name.value, PROVIDERS[name]) for name in providers.names],
        finds=finds,
        provider_name=None if finds is None else PROVIDERS[finds.search.provider],
        credits={photo.endpoint: CreditLine(photo.credit) for photo in photos},
        used_url=used_url,
        used_figure=figure_markup(used_photo, used_url) if used_photo else None,
    )


def writer_words(source: str) -> str:
    writer, *more = source.split("; ")
    is_offline = writer == OFFLINE
    words = "the offline writer" if is_offline else f"the model {writer.partition('/')[2]}"
    if "fallback" in more:
        words += ", since the model gave no answer"
    return f"Written by {words}" + (" before, and kept." if "cached" in more else ".")


@dataclass(frozen=True)
class CreditLine:
    """The credit of a photo, for our page and for the page of the person who uses the photo."""

    credit: PhotoCredit

    def __html__(self) -> str:
        # Each text and URL of the provider is escaped here, so a template need not.
        credit = self.credit
        title = f"“{credit.title}”" if credit.title else "Photo"
        author = _linked(credit.author, credit.author_url)
        line = f"{_linked(title, credit.title_url)} by {author}"
        if credit.provider:
            line += f" on {_linked(credit.provider, credit.provider_url)}"
        if credit.licence:
            line += f", {_linked(credit.licence, credit.licence_url)}"
        return line


def figure_markup(photo: FoundPhoto, url: str) -> str:
    has_size = photo.width and photo.height
    size = f' width="{photo.width}" height="{photo.height}"' if has_size else ""
    image = f'<img src="{escape(url)}" alt="{escape(photo.shows)}"{size}>'
    credit = CreditLine(photo.credit).__html__()
    return f"<figure>{image}<figcaption>{credit}</figcaption></figure>"


def _linked(text: str, url: str | None) -> str:
    return escape(text) if url is None else f'<a href="{escape(url)}">{escape(text)}</a>'
