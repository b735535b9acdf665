"""Pages for viewing an owner's lists, and editing settings and public pages."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from babel import Locale
from fastapi import Depends
from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.growth import draw_growth_line
from api.console.navigation import get_list_path
from api.console.plan_notices import can_import, find_plan_notice
from api.console.requests import (
    ConsoleAccess,
    ConsoleRequest,
    EditForm,
    EditPage,
    EmptyForm,
    FiguresPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import parse_body, read_lines, read_number, read_text
from api.html.frame import get_list_style_hashes
from api.limits.keyed_bulkheads import threaded_by_list
from api.paging import Cursor
from api.record_ids import ListId
from api.responses.lists import describe_list, describe_lists
from api.schemas.attachments import AttachmentRecord
from api.schemas.lists import ListChanges, NewList, PreviewPart
from api.sign_up.form import ListForm
from api.sign_up.previews import render_embedded_form, render_preview
from api.state import Transaction
from core.errors.mailing import LIST_SLUG_TAKEN
from core.languages import reader_languages
from core.permissions import Permission
from core.settings.mail_server import MailSender
from core.settings.notations import PlanQuota
from models import AttachmentStatus
from services.attachments import records
from services.composer.rules import fit_slug
from services.paging import PageRequest
from services.subscriptions import colours, daily_figures, fields, lists, page_urls
from services.subscriptions.colours import DEFAULT_COLOUR
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists")

LISTS_ON_PAGE = 50
DAYS_OF_NET = 30
# Maps an error code to the form field that shows the error.
PLACES = {LIST_SLUG_TAKEN.code: "slug"}
PROVIDERS = {"turnstile": "Cloudflare Turnstile", "hcaptcha": "hCaptcha", "recaptcha": "reCAPTCHA"}
_TEXT_FIELDS = (
    "tagline",
    "description",
    "avatar_image_url",
    "favicon_image_url",
    "consent_wording",
    "confirmed_redirect",
)
_CONFIRM_FIELD = "confirm_required"
_ORIGINS_FIELD = "redirect_origins"
_BOUNCE_LIMIT_FIELD = "soft_bounce_limit"
# The name of the select box for a public member field consists of this prefix and the key of the
# field.
_MEMBER_FIELD_PREFIX = "field_"
_NOT_ASKED = "no"
_ASKED = "asked"
_REQUIRED = "required"
_FIELD_CHOICES = ((_NOT_ASKED, "Not asked"), (_ASKED, "Optional"), (_REQUIRED, "Required"))
_CHECKBOX_FIELDS = ("email_channel_enabled", "challenge_enabled", _CONFIRM_FIELD)
_LOOK_FIELDS = (
    *("colour", "logo_hash_id", "sender_name"),
    *("sign_up_text", "thanks_text", "confirmation_text"),
)
# The name of the button that resets a list's colour to the default colour.
_USUAL_COLOUR_BUTTON = "usual_colour"
IMAGES_TO_CHOOSE = 100
ClosePage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.CLOSE))]
CloseForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.CLOSE, is_form=True))
]


@router.get("")
def show_lists(console: FiguresPage, uow: Transaction, cursor: Cursor = None) -> Response:
    page = lists.list_for_user(uow, console.account_id, PageRequest(LISTS_ON_PAGE, cursor=cursor))
    records = describe_lists(uow, console.state, page.rows)
    growth = daily_figures.read_list_growth(uow, [each.id for each in records], DAYS_OF_NET)
    return console.render_page(
        "lists.html",
        lists=[(each, sum(growth[each.id]), draw_growth_line(growth[each.id])) for each in records],
        next_cursor=page.next_cursor,
        can_import=can_import(uow, console.account_id),
    )


@router.get("/new")
def show_new_list(console: EditPage, uow: Transaction, form: EmptyForm) -> Response:
    return console.render_page(
        "new_list.html",
        form.fill({_CONFIRM_FIELD: "on"}),
        refusal=find_plan_notice(uow, console.account_id, PlanQuota.LISTS),
        sign_up_url=page_urls.sign_up_url(console.state.resources.settings, ""),
    )


@router.post("/new")
@shows_errors_on(show_new_list, PLACES)
def create_list(console: EditForm, uow: Transaction) -> Response:
    form = console.form
    title = form.get("title", "")
    digest = hashlib.sha256(title.encode()).hexdigest()
    values = {
        "title": title,
        "slug": form.get("slug", "").strip() or lists.find_free_slug(uow, fit_slug(title, digest)),
        "tagline": read_text(form, "tagline"),
        _CONFIRM_FIELD: _CONFIRM_FIELD in form,
    }
    body = parse_body(NewList, values)
    mailing_list = lists.create_own_list(
        uow,
        console.caller,
        title=body.title,
        slug=body.slug,
        fields=body.sent(),
        providers=console.state.challenges.configured,
    )
    return console.redirect(
        get_list_path(mailing_list.id), f"The list “{mailing_list.title}” was created."
    )


@router.get("/{list_id}/public")
def show_public_pages(
    console: EditPage, uow: Transaction, list_id: ListId, form: EmptyForm, language: str = ""
) -> Response:
    state = console.state
    is_language_chosen = language != ""
    language = reader_languages.choose_language(language)
    mailing_list = console.get_own_list(uow, list_id)
    record = describe_list(uow, state, mailing_list)
    sign_up_form = ListForm.read(uow, mailing_list)
    mail = render_preview(uow, state, mailing_list, PreviewPart.CONFIRMATION_MAIL, language)
    sign_up = render_preview(uow, state, mailing_list, PreviewPart.SIGN_UP, language)
    logos = {
        each.hash_id: (each.title or each.original_filename, each.view_url)
        for each in _list_public_images(uow, console)
    }
    # Offer the list's current logo even if it was deleted or isn't among the newest images.
    if record.logo_hash_id is not None:
        logos.setdefault(record.logo_hash_id, (record.logo_hash_id, ""))
    names = {
        name: Locale.parse(name, sep="-").get_display_name("en") or name
        for name in reader_languages.list_languages()
    }
    values = {name: getattr(record, name) or "" for name in _LOOK_FIELDS}
    return console.render_page(
        "list_face.html",
        form.fill({**values, "colour": record.colour or DEFAULT_COLOUR}),
        # Allow the inline style with the list's colours, because the page embeds a preview of the
        # sign-up page.
        other_sources={
            **console.get_media_sources(),
            "style-src": get_list_style_hashes(sign_up_form.look),
        },
        list=record,
        # If the owner entered an invalid colour, don't show the contrast of the stored colour,
        # because the owner could mistake it for the contrast of the entered colour.
        contrast=None
        if "colour" in form.errors
        else colours.compute_contrast(record.colour or DEFAULT_COLOUR, colours.LIGHT_GROUND),
        language=language,
        is_language_chosen=is_language_chosen,
        languages=names,
        embedded=render_embedded_form(state, sign_up_form, language=language),
        fields=[field.label for field in sign_up_form.fields.values()],
        has_wording=sign_up_form.wording is not None,
        logos=[("", "None", ""), *((hash_id, *logo) for hash_id, logo in logos.items())],
        sender=MailSender.parse(state.resources.settings.mail_from),
        mail=mail,
        sign_up=sign_up,
    )


def _list_public_images(uow: UnitOfWork, console: ConsoleRequest) -> list[AttachmentRecord]:
    """Return the newest images that anyone can see, in the format of the API."""
    images = records.list_attachments(uow, console.caller, PageRequest(IMAGES_TO_CHOOSE)).rows
    settings = console.state.resources.settings
    return [
        AttachmentRecord.of(each, settings)
        for each in images
        if each.status == AttachmentStatus.READY and not each.encrypted
    ]


@router.post("/{list_id}/public")
@threaded_by_list
@shows_errors_on(show_public_pages, PLACES)
def change_public_pages(console: EditForm, uow: Transaction, list_id: ListId) -> Response:
    values = {name: read_text(console.form, name) for name in _LOOK_FIELDS}
    if _USUAL_COLOUR_BUTTON in console.form or values["colour"] == DEFAULT_COLOUR:
        values["colour"] = None
    notice = _change_list(uow, console, list_id, values, "The sign-up page was changed.")
    return console.redirect(f"{get_list_path(list_id)}/public", notice)


@router.get("/{list_id}/settings")
def show_settings(
    console: EditPage, uow: Transaction, list_id: ListId, form: EmptyForm
) -> Response:
    record = describe_list(uow, console.state, console.get_own_list(uow, list_id))
    public_fields = fields.read_own_fields(uow, console.account_id).select_public().by_key.values()
    pictures = {
        each.view_url: each.title or each.original_filename
        for each in _list_public_images(uow, console)
    }
    # Offer the list's current pictures even if they aren't among the newest images.
    for url in filter(None, (record.avatar_image_url, record.favicon_image_url)):
        pictures.setdefault(url, url)
    texts = ("title", "slug", "challenge_provider", *_TEXT_FIELDS)
    values = {name: getattr(record, name) or "" for name in texts}
    values[_ORIGINS_FIELD] = "\n".join(record.redirect_origins)
    values[_BOUNCE_LIMIT_FIELD] = str(record.soft_bounce_limit)
    values |= dict.fromkeys((name for name in _CHECKBOX_FIELDS if getattr(record, name)), "on")
    values |= dict.fromkeys(
        (_MEMBER_FIELD_PREFIX + key for key in record.asked_fields or ()), _ASKED
    )
    values |= dict.fromkeys(
        (_MEMBER_FIELD_PREFIX + key for key in record.required_fields), _REQUIRED
    )
    configured_names = console.state.challenges.configured
    # Offer the list's current challenge provider even if it is no longer configured.
    names = [
        name for name in PROVIDERS if name in configured_names or name == record.challenge_provider
    ]
    is_all = record.asked_fields is None
    return console.render_page(
        "list_settings.html",
        form.fill(values),
        list=record,
        pictures=[("", "None"), *pictures.items()],
        providers=[("", "None"), *((name, PROVIDERS[name]) for name in names)],
        sign_up_url=page_urls.sign_up_url(console.state.resources.settings, ""),
        public_fields=[
            (_MEMBER_FIELD_PREFIX + each.key, each.label, _ASKED if is_all else _NOT_ASKED)
            for each in public_fields
        ],
        askings=_FIELD_CHOICES,
    )


@router.post("/{list_id}/settings")
@threaded_by_list
@shows_errors_on(show_settings, PLACES)
def change_settings(console: EditForm, uow: Transaction, list_id: ListId) -> Response:
    form = console.form
    field_choices = {
        name.removeprefix(_MEMBER_FIELD_PREFIX): value
        for name, value in form.items()
        if name.startswith(_MEMBER_FIELD_PREFIX)
    }
    asked_keys = [key for key, value in field_choices.items() if value != _NOT_ASKED]
    values: dict[str, Any] = {
        **{name: read_text(form, name) for name in (*_TEXT_FIELDS, "challenge_provider")},
        **{name: name in form for name in _CHECKBOX_FIELDS},
        **{name: form.get(name, "").strip() for name in ("title", "slug")},
        "asked_fields": None if len(asked_keys) == len(field_choices) else asked_keys,
        "required_fields": [key for key, value in field_choices.items() if value == _REQUIRED],
        _ORIGINS_FIELD: read_lines(form, _ORIGINS_FIELD),
    }
    limit = read_number(form, _BOUNCE_LIMIT_FIELD)
    if limit is not None:
        values[_BOUNCE_LIMIT_FIELD] = limit
    notice = _change_list(uow, console, list_id, values, "The settings were saved.")
    return console.redirect(f"{get_list_path(list_id)}/settings", notice)


def _change_list(
    uow: UnitOfWork, console: ConsoleRequest, list_id: int, values: Mapping[str, Any], notice: str
) -> str:
    """Store the settings of a list, and return ``notice`` if any setting was changed."""
    fields = parse_body(ListChanges, values).sent()
    mailing_list = console.get_own_list(uow, list_id)
    providers = console.state.challenges.configured
    has_changed = lists.change_list(uow, mailing_list, fields, providers)
    return notice if has_changed else "There were no changes to save."


@router.get("/{list_id}/archive")
def show_archive(console: ClosePage, uow: Transaction, list_id: ListId) -> Response:
    record = describe_list(uow, console.state, console.get_own_list(uow, list_id))
    return console.render_page("archive_list.html", list=record)


@router.post("/{list_id}/archive")
@threaded_by_list
def archive_list(console: CloseForm, uow: Transaction, list_id: ListId) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    lists.archive_list(uow, mailing_list)
    return console.redirect(
        f"{CONSOLE_PATH}/lists", f"The list “{mailing_list.title}” was archived."
    )
