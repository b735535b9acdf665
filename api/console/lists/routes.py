"""An owner's lists: all of them, one of them with its growth, its settings and its public pages."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from babel import Locale
from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import SOURCES, TIERS
from api.console.lists.growth import growth_plot
from api.console.navigation import get_list_path
from api.console.requests import Console, ConsoleForm, ConsoleRequest, EmptyForm, build_router
from api.console.typed_forms import TypedForm, parse_body, read_lines, read_text
from api.html.frame import get_list_style_hashes
from api.limits.shares import threaded_by_list
from api.paging import Cursor
from api.record_ids import ListId
from api.responses.lists import describe_list, describe_lists
from api.schemas.lists import ListChanges, NewList, PreviewPart
from api.sign_up.form import ListForm
from api.sign_up.previews import render_embedded_form, render_preview
from api.state import Transaction
from core import clock
from core.errors import DomainError
from core.errors.mailing import LIST_SLUG_TAKEN
from core.languages import reader_languages
from models import AttachmentStatus
from services.attachments import records
from services.paging import PageRequest
from services.subscriptions import colours, daily_figures, fields, lists
from services.subscriptions.colours import USUAL_COLOUR
from services.subscriptions.daily_figures import DayRange, FiguresBy

router = build_router(f"{CONSOLE_PATH}/lists")

LISTS_ON_PAGE = 50
DAYS_OF_NET = 30
_PERIODS = {"30": "30 days", "90": "90 days", "365": "A year", "1095": "Three years"}
_USUAL_PERIOD = "30"
# The form fields at which errors without a field of their own are shown.
PLACES = {LIST_SLUG_TAKEN.code: "slug"}
PROVIDERS = {"turnstile": "Cloudflare Turnstile", "hcaptcha": "hCaptcha", "recaptcha": "reCAPTCHA"}
_TEXTS = ("tagline", "description", "avatar_image_url", "favicon_image_url", "consent_wording")
_CONFIRMED, _ORIGINS = "confirm_required", "redirect_origins"
# How the form of the settings names the public fields, and what it says of each.
_FIELD = "field_"
_NOT_ASKED, _ASKED, _REQUIRED = "no", "asked", "required"
_ASKINGS = ((_NOT_ASKED, "Not asked"), (_ASKED, "Asked"), (_REQUIRED, "Required"))
_BOXES = ("email_channel_enabled", "challenge_enabled", _CONFIRMED)
_LOOK = (
    *("colour", "logo_hash_id", "sender_name"),
    *("sign_up_text", "thanks_text", "confirmation_text"),
)
# The button that gives a list the colour of this installation.
_USUAL = "usual_colour"
IMAGES_TO_CHOOSE = 100


@router.get("")
def show_lists(console: Console, uow: Transaction, cursor: Cursor = None) -> Response:
    found = lists.list_of(uow, console.user_id, PageRequest(LISTS_ON_PAGE, cursor=cursor))
    shown = describe_lists(uow, console.state, found.rows)
    net = daily_figures.list_growth(uow, [each.id for each in shown], DAYS_OF_NET)
    return console.render_page("lists.html", lists=shown, net=net, next_cursor=found.next_cursor)


@router.get("/new")
def show_new_list(console: Console) -> Response:
    return console.render_form("new_list.html", TypedForm({_CONFIRMED: "on"}))


@router.post("/new")
def make_list(console: ConsoleForm) -> Response:
    form = console.form
    values = {
        "title": form.get("title", ""),
        "slug": form.get("slug", "").strip(),
        "tagline": read_text(form, "tagline"),
        _CONFIRMED: _CONFIRMED in form,
    }
    try:
        body = parse_body(NewList, values)
        with console.unit_of_work() as uow:
            made = lists.create_own_list(
                uow,
                console.caller,
                title=body.title,
                slug=body.slug,
                fields=body.sent(),
                providers=console.state.challenges.configured,
            )
            list_id, title = made.id, made.title
    except DomainError as error:
        return console.render_form("new_list.html", console.add_error(error, PLACES))
    return console.redirect_with_notice(get_list_path(list_id), f"The list “{title}” is created.")


@router.get("/{list_id}")
def show_list(
    console: Console, uow: Transaction, list_id: ListId, days: str = _USUAL_PERIOD
) -> Response:
    period = days if days in _PERIODS else _USUAL_PERIOD
    last = clock.now().date()
    wanted = DayRange(last - timedelta(days=int(period) - 1), last)
    mailing_list = console.get_own_list(uow, list_id)
    by_source = daily_figures.count_members(uow, mailing_list.id, FiguresBy.SOURCE)
    by_tier = daily_figures.count_members(uow, mailing_list.id, FiguresBy.TIER)
    return console.render_page(
        "list.html",
        list=describe_list(uow, console.state, mailing_list),
        by_source=[(SOURCES.get(key, key), count) for key, count in by_source.items()],
        by_tier=[(TIERS.get(key, key), count) for key, count in by_tier.items()],
        plot=growth_plot(daily_figures.read_figures(uow, mailing_list.id, wanted, FiguresBy.DAY)),
        sign_ups=daily_figures.count_sign_ups(uow, mailing_list.id, wanted),
        period=period,
        periods=_PERIODS,
    )


@router.get("/{list_id}/public")
def show_face(console: Console, list_id: ListId, form: EmptyForm, language: str = "") -> Response:
    state, language = console.state, reader_languages.chosen(language)
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        shown = describe_list(uow, state, mailing_list)
        sign_up_form = ListForm.read(uow, mailing_list, state.resources.settings)
        images = records.list_attachments(uow, console.caller, PageRequest(IMAGES_TO_CHOOSE)).rows
        mail = render_preview(uow, state, mailing_list, PreviewPart.CONFIRMATION_MAIL, language)
        sign_up = render_preview(uow, state, mailing_list, PreviewPart.SIGN_UP, language)
    logos = {
        each.hash_id: each.title or each.original_filename
        for each in images
        if each.status == AttachmentStatus.READY and not each.encrypted
    }
    # A logo that is older than these images, or gone, is shown as long as the list has it.
    if shown.logo_hash_id is not None:
        logos.setdefault(shown.logo_hash_id, shown.logo_hash_id)
    names = {
        name: Locale.parse(name, sep="-").get_display_name("en") or name
        for name in reader_languages.languages()
    }
    typed = {name: getattr(shown, name) or "" for name in _LOOK}
    return console.render_form(
        "list_face.html",
        form.fill({**typed, "colour": shown.colour or USUAL_COLOUR}),
        # The picture of the sign-up page is inlined, and has the style of that page.
        other_sources={
            **console.get_media_sources(),
            "style-src": get_list_style_hashes(sign_up_form.look),
        },
        list=shown,
        contrast=colours.colour_contrast(shown.colour or USUAL_COLOUR, colours.LIGHT_GROUND),
        language=language,
        languages=names,
        embedded=render_embedded_form(state, sign_up_form, language=language),
        fields=[field.label for field in sign_up_form.fields.values()],
        has_wording=sign_up_form.wording is not None,
        logos=[("", "None"), *logos.items()],
        mail=mail,
        sign_up=sign_up,
    )


@router.post("/{list_id}/public")
@threaded_by_list
def change_face(console: ConsoleForm, list_id: ListId) -> Response:
    values = {name: read_text(console.form, name) for name in _LOOK}
    if _USUAL in console.form or values["colour"] == USUAL_COLOUR:
        values["colour"] = None
    notice = "What readers see is changed."
    return _change(console, list_id, values, show_face, tab="public", notice=notice)


@router.get("/{list_id}/settings")
def show_settings(console: Console, list_id: ListId, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        shown = describe_list(uow, console.state, console.get_own_list(uow, list_id))
        public = [*fields.read_own_fields(uow, console.user_id).public().by_key.values()]
    texts = ("title", "slug", "challenge_provider", *_TEXTS)
    typed = {name: getattr(shown, name) or "" for name in texts}
    typed[_ORIGINS] = "\n".join(shown.redirect_origins)
    typed |= dict.fromkeys((name for name in _BOXES if getattr(shown, name)), "on")
    typed |= dict.fromkeys((_FIELD + key for key in shown.asked_fields or ()), _ASKED)
    typed |= dict.fromkeys((_FIELD + key for key in shown.required_fields), _REQUIRED)
    able = console.state.challenges.configured
    # A provider that is not set up any more is shown as long as the list has it.
    names = [name for name in PROVIDERS if name in able or name == shown.challenge_provider]
    is_all = shown.asked_fields is None
    return console.render_form(
        "list_settings.html",
        form.fill(typed),
        list=shown,
        providers=[("", "None"), *((name, PROVIDERS[name]) for name in names)],
        public_fields=[
            (_FIELD + each.key, each.label, _ASKED if is_all else _NOT_ASKED) for each in public
        ],
        askings=_ASKINGS,
    )


@router.post("/{list_id}/settings")
@threaded_by_list
def change_settings(console: ConsoleForm, list_id: ListId) -> Response:
    form = console.form
    kinds = {
        name.removeprefix(_FIELD): value for name, value in form.items() if name.startswith(_FIELD)
    }
    asked = [key for key, value in kinds.items() if value != _NOT_ASKED]
    values = {
        **{name: read_text(form, name) for name in (*_TEXTS, "challenge_provider")},
        **{name: name in form for name in _BOXES},
        **{name: form.get(name, "").strip() for name in ("title", "slug")},
        "asked_fields": None if len(asked) == len(kinds) else asked,
        "required_fields": [key for key, value in kinds.items() if value == _REQUIRED],
        _ORIGINS: read_lines(form, _ORIGINS),
    }
    notice = "The list is changed."
    return _change(console, list_id, values, show_settings, tab="settings", notice=notice)


def _change(
    console: ConsoleRequest,
    list_id: int,
    values: Mapping[str, Any],
    page: Callable[[ConsoleRequest, int, TypedForm], Response],
    *,
    tab: str,
    notice: str,
) -> Response:
    """Change what the form has other than the list, and show the tab of the list again.

    The rest is not sent: a logo that was deleted, or a provider that is not set up any more, must
    not keep the owner from changing the title.
    """
    try:
        with console.unit_of_work() as uow:
            shown = describe_list(uow, console.state, console.get_own_list(uow, list_id))
        had = {name: getattr(shown, name) for name in values}
        differs = {name: value for name, value in values.items() if value != had[name]}
        sent = parse_body(ListChanges, differs).sent()
        changes = lists.validate_values(console.state.resources.settings, sent)
        with console.unit_of_work() as uow:
            mailing_list = console.get_own_list(uow, list_id)
            lists.change_list(uow, mailing_list, changes, console.state.challenges.configured)
    except DomainError as error:
        return page(console, list_id, console.add_error(error, PLACES))
    path = f"{get_list_path(list_id)}/{tab}"
    return console.redirect_with_notice(path, notice if changes else "Nothing was to be changed.")


@router.get("/{list_id}/archive")
def show_archive(console: Console, uow: Transaction, list_id: ListId, form: EmptyForm) -> Response:
    shown = describe_list(uow, console.state, console.get_own_list(uow, list_id))
    return console.render_form("archive_list.html", form, list=shown)


@router.post("/{list_id}/archive")
@threaded_by_list
def archive_list(console: ConsoleForm, uow: Transaction, list_id: ListId) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    lists.archive_list(uow, mailing_list)
    return console.redirect_with_notice(
        f"{CONSOLE_PATH}/lists", f"The list “{mailing_list.title}” is archived."
    )
