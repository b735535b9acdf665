"""The overview page of the console, and the page with search results."""

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.navigation import find_pages
from api.console.overview.views import ACTIVITIES, VISIBLE_WARNINGS, read_overview
from api.console.requests import (
    AccessForm,
    ConsoleRequest,
    EditForm,
    FiguresPage,
    MembersPage,
    build_router,
    threaded_as_search,
)
from api.record_ids import PathId
from api.state import Transaction
from core.errors.requests import ROUTE_NOT_FOUND
from services import attention
from services.accounts import accounts
from services.attention import AttentionKind
from services.subscriptions.filters import owner_search
from services.subscriptions.filters.owner_search import ListTitle, SearchResult
from storage.unit_of_work import UnitOfWork

router = build_router(CONSOLE_PATH)


@router.get("")
def show_overview(console: FiguresPage, uow: Transaction) -> Response:
    overview = read_overview(uow, console)
    if overview.events:
        console.count_members_page(uow)
    return console.render_page(
        "overview.html",
        overview=overview,
        activities=ACTIVITIES,
        visible_warnings=VISIBLE_WARNINGS,
    )


@router.post("/warnings/import/{import_id}/dismiss")
def dismiss_import(console: EditForm, uow: Transaction, import_id: PathId) -> Response:
    return _dismiss_warning(uow, console, AttentionKind.IMPORT, import_id)


@router.post("/warnings/webhook/{endpoint_id}/dismiss")
def dismiss_webhook(console: AccessForm, uow: Transaction, endpoint_id: PathId) -> Response:
    return _dismiss_warning(uow, console, AttentionKind.WEBHOOK, endpoint_id)


@router.post("/warnings/sender/{sender_id}/dismiss")
def dismiss_sender(console: AccessForm, uow: Transaction, sender_id: PathId) -> Response:
    return _dismiss_warning(uow, console, AttentionKind.SENDER, sender_id)


def _dismiss_warning(
    uow: UnitOfWork, console: ConsoleRequest, kind: AttentionKind, subject_id: int
) -> Response:
    if not attention.dismiss_line(uow, console.account_id, kind, subject_id):
        raise ROUTE_NOT_FOUND()
    return console.redirect(CONSOLE_PATH, "The warning was dismissed.")


@router.get("/find")
@threaded_as_search
def show_search_results(console: MembersPage, uow: Transaction, q: str = "") -> Response:
    search_text = q.replace("\0", "")[: owner_search.MAX_SEARCH_CHARACTERS]
    results = owner_search.search_lists_and_members(uow, console.caller, search_text)
    if results.members:
        console.count_members_page(uow)
    is_operator = accounts.get_user(uow, console.person_id).is_operator
    return console.render_page(
        "find.html",
        q=search_text,
        is_search=len(search_text.strip()) >= owner_search.MIN_SEARCH_CHARACTERS,
        results=results,
        pages=find_pages(search_text, is_operator=is_operator),
        searchable=_list_searchable(results),
        searched_list=_find_searched_list(results),
    )


def _find_searched_list(results: SearchResult) -> int | str:
    """Return the list id for the example of an API call, or the placeholder "LIST"."""
    if results.lists:
        return results.lists[0].id
    return results.members[0].lists[0].id if results.members else "LIST"


def _list_searchable(results: SearchResult) -> list[ListTitle]:
    """Return the lists in which the owner can search for more matching members."""
    if not results.has_more_members:
        return []
    matching_lists = {each.lists[0].id: each.lists[0] for each in results.members}
    return list(matching_lists.values())
