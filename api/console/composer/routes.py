"""The page on which a user writes texts for a post with the composer, and searches photos."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from api.composer_calls import ComposerCaller
from api.console.assets import CONSOLE_PATH
from api.console.composer.photo_credits import CreditLine, build_figure
from api.console.console_display import format_credits
from api.console.plan_notices import find_plan_notice
from api.console.requests import ConsoleAccess, ConsoleRequest, build_router
from api.console.typed_forms import TypedForm, parse_body
from api.console.uploaded_images import WAIT_SECONDS, wait_for_image
from api.errors import STATUS_OF
from api.limits.bulkheads import REQUESTS
from api.schemas.attachments import MAX_PICTURE_TITLE_CHARACTERS
from api.schemas.composer import PostBody
from api.state import State, Transaction
from core.errors import DomainError, Kind
from core.errors.money import CREDITS_INSUFFICIENT
from core.ids import AccountId
from core.permissions import Permission
from core.queues import Queue
from core.settings.notations import PlanQuota
from integrations.stock_photos.port import FoundPhoto, PhotoProviderName
from services.attachments import records
from services.composer import call_charges
from services.composer.photos import PhotoCopy, PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.requests import OFFLINE, MetadataRequest
from services.composer.text.post import MAX_TWEETS, MetadataField, split_tweets
from services.composer.text.tweet_weight import MAX_TWEET_WEIGHT, measure_tweet_weight
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from storage.unit_of_work import UnitOfWork

PATH = f"{CONSOLE_PATH}/composer"
router = build_router(PATH)

TWEETS = "tweets"
# Each tweet has its own form field, from ``tweet_1`` to ``tweet_5``.
TWEET_FIELDS = [f"tweet_{number}" for number in range(1, MAX_TWEETS + 1)]
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
# Measuring a tweet by the rules of X (Twitter) is slow for long texts. Only the first 4,000
# characters are measured by these rules, because a longer tweet is too long for X in any case.
_MAX_MEASURED_CHARACTERS = 4_000
# Hidden form fields with this prefix contain the photo search in which the user chose a photo.
_USED_SEARCH = "used"
# Hidden form fields with this prefix contain the user's latest photo search.
_LAST_SEARCH = "found"
PROVIDER_LABELS = {PhotoProviderName.UNSPLASH: "Unsplash", PhotoProviderName.OPENVERSE: "Openverse"}
_NO_POST = TypedForm(
    errors={"content": "Enter a title or paste a post."},
    status=422,
)
_NO_SEARCH_TEXT = TypedForm(
    errors={"words": "Enter a few words that describe the photo."},
    status=422,
)
ComposerPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.COMPOSER))]
ComposerForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.COMPOSER, is_form=True))
]


@dataclass(frozen=True)
class PhotoFinds:
    """A page of search results from a stock photo provider."""

    search: PhotoSearch
    photos: list[FoundPhoto]

    @property
    def has_more(self) -> bool:
        return len(self.photos) >= PHOTOS_ON_PAGE and self.search.page < MAX_PHOTO_PAGE


@dataclass(frozen=True)
class Tweet:
    """A tweet in a form field. ``weight``: its length by the counting rules of X (Twitter)."""

    name: str
    label: str
    text: str
    weight: int

    @property
    def is_too_long(self) -> bool:
        return self.weight > MAX_TWEET_WEIGHT


@dataclass(frozen=True)
class UsedPhoto:
    """The photo that the user chose from the search results.

    ``allows_copies``: whether the provider allows users to copy the photo to their images.
    """

    photo: FoundPhoto
    credit: CreditLine
    figure: str
    provider: str
    allows_copies: bool


@dataclass(frozen=True)
class _Outcome:
    """The result of pressing a button in the composer.

    Attributes:
        fields: maps the names of form fields to their new values.
        finds: the photos that the search returned, or ``None`` if the user didn't search for
            photos.
    """

    fields: Mapping[str, str]
    invalid_form: TypedForm | None = None
    error: DomainError | None = None
    finds: PhotoFinds | None = None


@router.get("")
def show_composer(console: ComposerPage, uow: Transaction) -> Response:
    return _render_composer(uow, console, TypedForm(), None, None, is_of_photos=False)


@router.post("")
async def compose_post(request: Request, console: ComposerForm) -> Response:
    """Do what the pressed button says: write texts, search for photos, or use or copy a photo."""
    calls = ComposerCaller(request, console.state, console.caller)
    inputs = console.form
    is_writing = "write" in inputs
    if is_writing:
        outcome = await _write_parts(calls, inputs)
    elif "add" in inputs:
        outcome = await _add_photo(console, calls)
    else:
        outcome = await _find_photos(calls, inputs)
    typed = {**inputs, **outcome.fields}
    finds = outcome.finds or await _read_cached_finds(console.state, typed, _LAST_SEARCH)
    used_finds = await _read_cached_finds(console.state, typed, _USED_SEARCH)
    updated_console = replace(console, form=typed)
    return await console.state.in_unit_of_work(
        _render_outcome,
        updated_console,
        outcome,
        finds,
        used_finds,
        is_of_photos=not is_writing,
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
    account_id = calls.caller.account_id
    outcomes = await asyncio.gather(
        *(
            calls.write_metadata(each, partial(_build_call_key, account_id, each))
            for each in requests
        ),
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
    if TWEETS in fields:
        texts = split_tweets(fields.pop(TWEETS))[: len(TWEET_FIELDS)]
        fields |= dict(zip_longest(TWEET_FIELDS, texts, fillvalue=""))
    return _Outcome(fields, error=first_error)


def _build_call_key(account_id: AccountId, metadata_request: MetadataRequest) -> IdempotencyKey:
    """Return the idempotency key for writing texts for a post.

    A user who requests the same texts for the same post twice is charged only once.
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
    return IdempotencyKey(
        account_id, _ROUTE, f"{_ROUTE}-{digest.hexdigest()[:32]}", digest.digest()
    )


async def _find_photos(calls: ComposerCaller, inputs: Mapping[str, str]) -> _Outcome:
    """Search for photos, or return the URL of the photo that the user chose."""
    state = calls.state
    try:
        if endpoint := inputs.get("use"):
            name = _read_provider(state, inputs.get("found_provider", ""))
            photo = state.photos.providers.get_provider(name).parse_endpoint(endpoint)
            url = await calls.obtain_photo_url(PhotoUse(name, photo))
            search_fields = {
                f"{_USED_SEARCH}_{part}": inputs.get(f"{_LAST_SEARCH}_{part}", "")
                for part in ("words", "provider", "page")
            }
            fields = {"used": endpoint, "used_url": url, "added": "", **search_fields}
            return _Outcome(fields)
        if "page" in inputs:
            page = inputs["page"] or inputs.get("found_page", "")
            search = _read_search(state, inputs, _LAST_SEARCH, page)
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
    }
    return _Outcome(fields, finds=photo_finds)


async def _add_photo(console: ConsoleRequest, calls: ComposerCaller) -> _Outcome:
    inputs = console.form
    state = console.state
    try:
        state.admit(Queue.MEDIA, console.account_id, WAIT_SECONDS)
        name = _read_provider(state, inputs.get("used_provider", ""))
        endpoint = inputs.get("used", "")
        photo = state.photos.providers.get_provider(name).parse_endpoint(endpoint)
        accepted = await calls.copy_photo(PhotoCopy(name, photo, console.account_id))
        used_finds = await _read_cached_finds(state, inputs, _USED_SEARCH)
        found_photo = _find_photo(used_finds, endpoint)
        if found_photo is not None:
            await state.in_unit_of_work(_describe_image, console, accepted, found_photo)
        image = await wait_for_image(console, accepted)
    except DomainError as error:
        return _Outcome({}, error=error)
    return _Outcome({"added": image.hash_id})


def _describe_image(
    uow: UnitOfWork, console: ConsoleRequest, accepted: AcceptedJob, photo: FoundPhoto
) -> None:
    """Store the photo's alternative text, and its attribution, which most licences require."""
    image = records.find_outcome(uow, accepted)
    if not isinstance(image, DomainError):
        title = photo.credit.describe()[:MAX_PICTURE_TITLE_CHARACTERS]
        changes = {"alt_text": photo.shows or None, "title": title}
        records.change_attachment(uow, console.caller, image.hash_id, changes)


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


def _read_search(
    state: State, inputs: Mapping[str, str], prefix: str, page: str
) -> PhotoSearch | None:
    """Return the photo search in the hidden form fields, or ``None`` if the fields are empty."""
    search_text = inputs.get(f"{prefix}_words", "")
    return (
        _build_search(state, search_text, inputs.get(f"{prefix}_provider", ""), page)
        if search_text
        else None
    )


async def _read_cached_finds(
    state: State, inputs: Mapping[str, str], prefix: str
) -> PhotoFinds | None:
    """Return the photos for the search in the hidden form fields, if the result is cached."""
    search = _read_search(state, inputs, prefix, inputs.get(f"{prefix}_page", ""))
    if search is None:
        return None
    _, cached = await REQUESTS.run(state.photos.look_up, search)
    return None if cached is None else _build_finds(state, search, cached)


def _find_photo(finds: PhotoFinds | None, endpoint: str) -> FoundPhoto | None:
    photos = [] if finds is None else finds.photos
    return next((photo for photo in photos if photo.endpoint == endpoint), None)


def _render_outcome(
    uow: UnitOfWork,
    console: ConsoleRequest,
    outcome: _Outcome,
    finds: PhotoFinds | None,
    used_finds: PhotoFinds | None,
    *,
    is_of_photos: bool,
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
    return _render_composer(uow, console, form, finds, used_finds, is_of_photos=is_of_photos)


def _render_composer(
    uow: UnitOfWork,
    console: ConsoleRequest,
    form: TypedForm,
    finds: PhotoFinds | None,
    used_finds: PhotoFinds | None,
    *,
    is_of_photos: bool,
) -> Response:
    price = call_charges.get_call_price(console.state.resources.settings)
    providers = console.state.photos.providers
    photos = [] if finds is None else finds.photos
    origins = {
        origin
        for each in (finds, used_finds)
        if each is not None and each.photos
        for origin in providers.get_provider(each.search.provider).image_origins
    }
    return console.render_page(
        "composer.html",
        form,
        other_sources={"img-src": " ".join(sorted(origins))} if origins else {},
        is_of_photos=is_of_photos,
        refusal=find_plan_notice(uow, console.account_id, PlanQuota.COMPOSER_PER_DAY),
        storage_refusal=find_plan_notice(uow, console.account_id, PlanQuota.STORAGE_MB),
        parts=PART_LABELS,
        writers=describe_writers(form.typed),
        tweets=_list_tweets(form.typed),
        max_tweet_weight=MAX_TWEET_WEIGHT,
        price=price,
        price_of_all=None if price is None else 2 * price,
        providers=[(name.value, PROVIDER_LABELS[name]) for name in providers.names],
        finds=finds,
        provider_name=None if finds is None else PROVIDER_LABELS[finds.search.provider],
        credits={photo.endpoint: CreditLine(photo.credit) for photo in photos},
        used_url=form.typed.get("used_url", ""),
        used_photo=_build_used_photo(console.state, form.typed, used_finds),
    )


def _build_used_photo(
    state: State, typed: Mapping[str, str], used_finds: PhotoFinds | None
) -> UsedPhoto | None:
    photo = _find_photo(used_finds, typed.get("used", ""))
    if photo is None or used_finds is None:
        return None
    name = used_finds.search.provider
    return UsedPhoto(
        photo=photo,
        credit=CreditLine(photo.credit),
        figure=build_figure(photo, typed.get("used_url", "")),
        provider=PROVIDER_LABELS[name],
        allows_copies=state.photos.providers.get_provider(name).allows_copies,
    )


def _list_tweets(typed: Mapping[str, str]) -> list[Tweet]:
    """Return the tweets that aren't empty, and number their form fields from 1."""
    texts = [text for name in TWEET_FIELDS if (text := typed.get(name, "")).strip()]
    return [
        Tweet(name, f"Tweet {number}", text, _measure_tweet(text))
        for number, (name, text) in enumerate(zip(TWEET_FIELDS, texts, strict=False), start=1)
    ]


def _measure_tweet(text: str) -> int:
    measured_text = text[:_MAX_MEASURED_CHARACTERS]
    return measure_tweet_weight(measured_text) + len(text) - len(measured_text)


def describe_writers(typed: Mapping[str, str]) -> dict[str, str]:
    """Describe who or what wrote the texts for a post: a language model or the offline writer.

    Each sentence, such as "Written without a language model.", is mapped to the labels of its
    texts, such as "Slug, Tags". A sentence about all texts is mapped to an empty string instead.
    """
    labels_by_sentence: dict[str, list[str]] = {}
    for name, label in PART_LABELS.items():
        if source := typed.get(f"{name}{WRITER_SUFFIX}"):
            labels_by_sentence.setdefault(describe_writer(source), []).append(label)
    if len(labels_by_sentence) == 1:
        return dict.fromkeys(labels_by_sentence, "")
    return {sentence: ", ".join(labels) for sentence, labels in labels_by_sentence.items()}


def describe_writer(source: str) -> str:
    writer, *details = source.split("; ")
    is_offline = writer == OFFLINE
    text = "without a language model" if is_offline else f"by the model {writer.partition('/')[2]}"
    if "fallback" in details:
        text += ", because the model didn’t answer"
    return f"Written {'earlier ' if 'cached' in details else ''}{text}."
