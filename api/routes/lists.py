"""The API endpoints for lists and deny lists."""

from datetime import date
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from api.auth.requirements import ListCloser, ListEditor, ListReader, MemberReader
from api.limits.keyed_bulkheads import threaded_by_list
from api.openapi.declarations import LIST_ERRORS, error_responses
from api.paging import Paging
from api.record_ids import ListId
from api.responses.lists import describe_list, describe_lists
from api.route_classes import JsonRoute
from api.schemas import lists as schemas
from api.schemas.engagement import ListEngagement
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.sign_up.form import ListForm
from api.sign_up.previews import render_embedded_form, render_preview
from api.state import StateOf, Transaction
from core.errors import access, mailing, requests
from core.languages import reader_languages
from models import EngagementMode
from services.engagement import figures as engagement_figures
from services.subscriptions import daily_figures, deny_lists, lists
from services.subscriptions.daily_figures import FiguresBy
from services.subscriptions.members import traces

# The errors for invalid values in the fields of a mailing list.
_LIST_FIELD_ERRORS = (
    mailing.LIST_FIELDS,
    mailing.LIST_SLUG_TAKEN,
    mailing.LIST_TITLE,
    mailing.LIST_SLUG,
    mailing.LIST_IMAGE_URL,
    mailing.LIST_CHALLENGE_PROVIDER,
    mailing.LIST_REDIRECT_ORIGINS,
    mailing.LIST_CONFIRMED_REDIRECT,
    mailing.LIST_CONSENT_WORDINGS,
    mailing.LIST_COLOUR,
    mailing.LIST_LOGO,
    mailing.LIST_SENDER_NAME,
    mailing.LIST_WORDS,
    mailing.TEXT_LEADS_AWAY,
    mailing.TEXT_MISLEADING,
)

router = APIRouter(tags=["Lists"], route_class=JsonRoute)


@router.post(
    "/lists",
    summary="Create a list",
    responses=error_responses(access.QUOTA_EXCEEDED, *_LIST_FIELD_ERRORS),
)
def create_list(
    state: StateOf, uow: Transaction, caller: ListEditor, body: schemas.NewList
) -> Envelope[schemas.Channel]:
    """Create a list that you own."""
    mailing_list = lists.create_own_list(
        uow,
        caller,
        title=body.title,
        slug=body.slug,
        fields=body.sent(),
        providers=state.challenges.configured,
    )
    return build_envelope(describe_list(uow, state, mailing_list))


@router.get("/lists", summary="List all lists", responses=error_responses(requests.CURSOR_INVALID))
def list_lists(
    state: StateOf, uow: Transaction, caller: ListReader, paging: Paging
) -> Envelope[Page[schemas.Channel]]:
    """List your lists, newest first. Archived lists are not included."""
    read = partial(lists.list_for_user, uow, caller.account_id)
    return build_envelope(build_page(paging, read, partial(describe_lists, uow, state)))


@router.get(
    "/lists/{list_id}",
    summary="Retrieve a list",
    responses=error_responses(mailing.LIST_NAME_INVALID, mailing.LIST_NOT_FOUND),
)
def read_list(
    state: StateOf, uow: Transaction, caller: ListReader, list_id: str
) -> Envelope[schemas.Channel]:
    """Retrieve a list by its id or slug. You can retrieve lists of other owners."""
    return build_envelope(describe_list(uow, state, lists.get_named(uow, list_id)))


@router.get(
    "/lists/{list_id}/stats",
    summary="Retrieve list statistics",
    responses=error_responses(*LIST_ERRORS, mailing.FIGURES_RANGE),
)
def read_list_stats(
    uow: Transaction,
    caller: ListReader,
    list_id: ListId,
    by: FiguresBy = FiguresBy.DAY,
    first: Annotated[
        date | None,
        Query(alias="from", description="The first day. Defaults to 29 days before the last day."),
    ] = None,
    last: Annotated[
        date | None, Query(alias="to", description="The last day. Defaults to today.")
    ] = None,
) -> Envelope[schemas.ListFigures]:
    """Count who joined and left a list, by day, source, tier, campaign, website, page or reason.

    Members who are added by an import count as joined, unless the import is undone. Members count
    as left after they unsubscribe, or after a removal, an erasure, or a transfer to another list.
    Pending members don't count as joined. In statistics by tier, a member who changes tiers counts
    as left in the old tier and as joined in the new tier. The sum of `net` over all days since the
    list's creation is the number of active members.

    Statistics by reason count why members left: unsubscribed, complained, bounced, removed, erased
    or transferred. `bounced` also counts members whose mail a bounce turned off. These members stay
    on the list, so other statistics don't count them as left. `joined`, `asked` and `confirmed` of
    these rows are 0.
    """
    days = daily_figures.choose_days(first, last)
    mailing_list = lists.get_own_list(uow, caller, list_id)
    figures = daily_figures.read_figures(uow, mailing_list.id, days, by)
    sign_ups = daily_figures.count_sign_ups(uow, mailing_list.id, days)
    return build_envelope(schemas.ListFigures.of(by, days, figures, sign_ups))


@router.get(
    "/lists/{list_id}/engagement",
    summary="Retrieve engagement statistics",
    responses=error_responses(*LIST_ERRORS),
)
def read_engagement(
    uow: Transaction,
    caller: ListReader,
    list_id: ListId,
    mode: Annotated[
        EngagementMode | None,
        Query(description="A mode whose effect `would_delete` tells"),
    ] = None,
) -> Envelope[ListEngagement]:
    """Count the active members of a list by their answer and by their last open or click.

    The sum of `activity` is the number of active members, and so is the sum of `answers`.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    figures = engagement_figures.read_figures(uow, mailing_list, mode)
    return build_envelope(ListEngagement.of(figures))


@router.patch(
    "/lists/{list_id}",
    summary="Update a list",
    responses=error_responses(*LIST_ERRORS, mailing.LIST_BUSY, *_LIST_FIELD_ERRORS),
)
@threaded_by_list
def change_list(
    state: StateOf, uow: Transaction, caller: ListEditor, list_id: ListId, body: schemas.ListChanges
) -> Envelope[schemas.Channel]:
    """Update a list. Fields that the request omits don't change."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    lists.change_list(uow, mailing_list, body.sent(), state.challenges.configured)
    uow.session.refresh(mailing_list)
    return build_envelope(describe_list(uow, state, mailing_list))


@router.delete(
    "/lists/{list_id}/traces",
    summary="Revoke trace ids",
    responses=error_responses(*LIST_ERRORS, mailing.LIST_BUSY, access.AUTH_LOGIN_AGAIN),
)
@threaded_by_list
def revoke_trace_ids(uow: Transaction, caller: ListCloser, list_id: ListId) -> Envelope[int]:
    """Revoke the trace ids of all rosters and mails so far, for example after a roster was leaked.

    With a link that contains a revoked trace id, readers can still unsubscribe or turn the list's
    mail off, but do nothing else. Callers with a session cookie must have logged in within the last
    15 minutes.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    traces.revoke_traces(uow, caller, mailing_list)
    return build_envelope(1)


@router.delete(
    "/lists/{list_id}",
    summary="Archive a list",
    responses=error_responses(mailing.LIST_NAME_INVALID, *LIST_ERRORS),
)
@threaded_by_list
def archive_list(uow: Transaction, caller: ListCloser, list_id: ListId) -> Envelope[int]:
    """Archive a list. Most requests treat an archived list as deleted, but readers can still
    unsubscribe.
    """
    return build_envelope(lists.archive_list(uow, lists.get_own_list(uow, caller, list_id)))


Language = Annotated[
    str | None,
    Query(
        description="The language as a code such as `de`. Defaults to English for unsupported "
        "languages."
    ),
]


@router.get(
    "/lists/{list_id}/embed",
    summary="Retrieve the embedded sign-up form",
    responses=error_responses(*LIST_ERRORS),
)
def read_embedded_form(
    state: StateOf,
    uow: Transaction,
    caller: ListReader,
    list_id: ListId,
    language: Language = None,
    origin: Annotated[
        bool,
        Query(
            description="Whether to add a short script that fills hidden fields with the "
            "campaign in the page's URL, the page's path and the referring website"
        ),
    ] = False,
) -> Envelope[schemas.EmbeddedForm]:
    """Retrieve the sign-up form of a list as plain HTML, which you can paste into any web page.

    If the form has no script, Pressroom takes a sign-up's origin from the `Referer` header.
    """
    form = ListForm.read(uow, lists.get_own_list(uow, caller, list_id))
    reader_language = reader_languages.choose_language(language or "")
    return build_envelope(
        render_embedded_form(state, form, language=reader_language, has_origin_script=origin)
    )


@router.get(
    "/lists/{list_id}/previews/{part}",
    summary="Preview a page or e-mail",
    responses=error_responses(*LIST_ERRORS),
)
def preview_list(
    state: StateOf,
    uow: Transaction,
    caller: ListReader,
    list_id: ListId,
    part: schemas.PreviewPart,
    language: Language = None,
) -> Envelope[schemas.ListPreview]:
    """Preview a page or e-mail of a list in a language, with the list's design and texts.

    The links in a preview don't work.
    """
    reader_language = reader_languages.choose_language(language or "")
    mailing_list = lists.get_own_list(uow, caller, list_id)
    return build_envelope(render_preview(uow, state, mailing_list, part, reader_language))


@router.post(
    "/lists/{list_id}/previews/{part}",
    summary="Preview list changes",
    responses=error_responses(*LIST_ERRORS, mailing.LIST_BUSY, *_LIST_FIELD_ERRORS),
)
@threaded_by_list
def preview_changed_list(
    state: StateOf,
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    part: schemas.PreviewPart,
    body: schemas.ListChanges,
    language: Language = None,
) -> Envelope[schemas.ListPreview]:
    """Preview a page or e-mail of a list with the changes in the request. The list itself doesn't
    change.
    """
    reader_language = reader_languages.choose_language(language or "")
    mailing_list = lists.get_own_list(uow, caller, list_id)
    trial = uow.session.begin_nested()
    lists.change_list(uow, mailing_list, body.sent(), state.challenges.configured)
    preview = render_preview(uow, state, mailing_list, part, reader_language)
    trial.rollback()
    return build_envelope(preview)


deny_list_router = APIRouter(tags=["Lists"], route_class=JsonRoute)


@deny_list_router.get("/deny-list", summary="Retrieve the deny list")
def read_deny_list(uow: Transaction, caller: MemberReader) -> Envelope[schemas.DenyListRecord]:
    """Retrieve your deny list. Denied addresses and domains can't join your lists."""
    deny_list = deny_lists.read_deny_list(uow, caller.account_id)
    return build_envelope(
        schemas.DenyListRecord(
            addresses=[*deny_list.addresses], domains=[*deny_list.domains], erased=deny_list.erased
        )
    )


@deny_list_router.put(
    "/deny-list",
    summary="Replace the deny list",
    responses=error_responses(mailing.DENY_LIST_ENTRY, mailing.DENY_LIST_TOO_LONG),
)
def replace_deny_list(
    uow: Transaction, caller: ListEditor, body: schemas.NewDenyList
) -> Envelope[int]:
    """Replace all entries of the deny list, and return the number of added and removed entries.

    People with a denied address can't join your lists. Existing members stay. Denied addresses of
    erased people stay denied. To remove the address of an erased person, name the address in a
    PATCH request.
    """
    entries = deny_lists.normalise_entries(body.addresses, body.domains)
    return build_envelope(deny_lists.replace_entries(uow, caller.account_id, entries))


@deny_list_router.patch(
    "/deny-list",
    summary="Update the deny list",
    responses=error_responses(mailing.DENY_LIST_ENTRY, mailing.DENY_LIST_TOO_LONG),
)
def change_deny_list(
    uow: Transaction, caller: ListEditor, body: schemas.DenyListChanges
) -> Envelope[int]:
    """Add and remove entries of the deny list, and return the number of changed entries."""
    add = deny_lists.normalise_entries(body.add_addresses, body.add_domains, verb="add_")
    remove = deny_lists.normalise_entries(
        body.remove_addresses, body.remove_domains, verb="remove_"
    )
    return build_envelope(deny_lists.change_entries(uow, caller.account_id, add=add, remove=remove))
