"""The composer: a post goes in; a slug, a summary, tags, tweets and photos come out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.composing.composer_calls import ComposerCaller
from api.console.assets import CONSOLE_PATH
from api.console.of_composer import composed_posts, photo_finds
from api.console.of_composer.composed_posts import ALL, BY, PARTS
from api.console.of_composer.photo_credits import CreditLine, figure_markup
from api.console.of_composer.photo_finds import PROVIDERS, PhotoFinds
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.errors import STATUS_OF
from api.limits.bulkheads import RECORDS
from core.errors import DomainError, Kind
from services.composer import call_charges
from services.composer.photos import PhotoSearch

# No operations of the API, so not in its document.
PATH = f"{CONSOLE_PATH}/composer"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)

MAX_SEARCH_CHARACTERS = 200
_NO_POST = TypedForm(
    wrong={"content": "Paste a post, or give it a title."},
    problem="There is no post yet.",
    status=422,
)
_NO_WORDS = TypedForm(
    wrong={"words": "Say in a few words what the photo shows."},
    problem="There are no words to look for.",
    status=422,
)


@dataclass(frozen=True)
class _Outcome:
    """What became of the button that was pressed.

    Attributes:
        fields: those of the form that it changed.
        wrong: what keeps the form from it, where it was kept.
        finds: the photos to show, where it found some.
    """

    fields: Mapping[str, str]
    wrong: TypedForm | None = None
    error: DomainError | None = None
    finds: PhotoFinds | None = None


@router.get("")
@RECORDS.threaded
def show_composer(visit: Visit) -> Response:
    return _page(visit, TypedForm(), None, is_of_photos=False)


@router.post("")
async def compose(request: Request, visit: FormVisit) -> Response:
    """Do what the button asks for, and show it with all that was typed."""
    calls = ComposerCaller(request, visit.state, visit.caller)
    typed = visit.form
    is_writing = "write" in typed
    outcome = await (_write if is_writing else _look_for_photos)(calls, typed)
    finds = outcome.finds or await photo_finds.found_before(visit.state, typed)
    kept = replace(visit, form={**typed, **outcome.fields})
    return await RECORDS.run(partial(_answer, kept, outcome, finds, is_of_photos=not is_writing))


async def _write(calls: ComposerCaller, typed: Mapping[str, str]) -> _Outcome:
    part = typed["write"] if typed["write"] in PARTS else ALL
    if not (typed.get("title", "").strip() or typed.get("content", "").strip()):
        return _Outcome({}, wrong=_NO_POST)
    try:
        written = await composed_posts.write(calls, composed_posts.post_of(typed), part)
    except DomainError as error:
        return _Outcome({}, error=error)
    return _Outcome(written.fields, error=written.error)


async def _look_for_photos(calls: ComposerCaller, typed: Mapping[str, str]) -> _Outcome:
    """Find photos, or, by the button of one of them, get its file."""
    try:
        if endpoint := typed.get("use"):
            url = await photo_finds.url_of_used(calls, typed.get("found_provider", ""), endpoint)
            return _Outcome({"used": endpoint, "used_url": url})
        search = _wanted(calls, typed)
        if search is None:
            return _Outcome({}, wrong=None if "enter" in typed else _NO_WORDS)
        finds = await photo_finds.find(calls, search)
    except DomainError as error:
        return _Outcome({}, error=error)
    return _Outcome({**finds.fields, "used": "", "used_url": ""}, finds=finds)


def _wanted(calls: ComposerCaller, typed: Mapping[str, str]) -> PhotoSearch | None:
    if "page" in typed:
        return photo_finds.search_before(calls.state, typed, typed["page"])
    words = " ".join(typed.get("words", "").split())[:MAX_SEARCH_CHARACTERS]
    # Enter in another field finds nothing anew.
    if not words or ("enter" in typed and words == typed.get("found_words")):
        return None
    return photo_finds.search_of(calls.state, words, typed.get("provider", ""), "1")


def _answer(
    visit: ConsoleVisit, outcome: _Outcome, finds: PhotoFinds | None, *, is_of_photos: bool
) -> Response:
    form = TypedForm(visit.form)
    if outcome.wrong is not None:
        form = replace(outcome.wrong, typed=visit.form)
    elif outcome.error is not None:
        form = _refused(visit, outcome.error)
    return _page(visit, form, finds, is_of_photos=is_of_photos)


def _refused(visit: ConsoleVisit, error: DomainError) -> TypedForm:
    if error.kind is Kind.NOT_FOUND:
        # Of a photo: nothing that was typed is lost by it.
        return TypedForm(visit.form, problem=error.message, status=STATUS_OF[error.kind])
    form = visit.refused(error)
    return replace(form, problem=composed_posts.why_too_few_credits(error) or form.problem)


def _page(
    visit: ConsoleVisit, form: TypedForm, finds: PhotoFinds | None, *, is_of_photos: bool
) -> Response:
    price = call_charges.price_of_call(visit.state.resources.settings)
    providers = visit.state.photos.providers
    used, used_url = form.typed.get("used", ""), form.typed.get("used_url", "")
    photos = [] if finds is None else finds.photos
    used_photo = next((photo for photo in photos if photo.endpoint == used), None)
    origins = [] if finds is None else providers.named(finds.search.provider).image_origins
    return visit.page(
        "composer.html",
        status=form.status,
        foreign={"img-src": " ".join(origins)} if photos else {},
        form=form,
        is_of_photos=is_of_photos,
        parts=PARTS,
        writers={
            name: composed_posts.writer_words(source)
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
