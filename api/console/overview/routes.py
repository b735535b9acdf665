"""The overview page of the console, and the page with search results."""

import json
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import QUOTAS, format_credits
from api.console.developers.views import list_newest_events
from api.console.navigation import find_pages, get_list_path
from api.console.plan_notices import find_plan_contact
from api.console.requests import Console, ConsoleRequest, build_router
from api.limits.keyed_bulkheads import SEARCHES_BY_CALLER
from api.responses.lists import describe_lists
from api.schemas.lists import Channel
from core.settings.notations import PlanQuota
from models import EndpointState, Plan
from services.access import quotas
from services.access.quotas import QuotaUse
from services.accounts import accounts
from services.accounts.page_paths import NEW_KEY_PATH
from services.credits import ledger
from services.feed.catalogue import FeedEventType
from services.paging import PageRequest
from services.subscriptions import daily_figures, lists
from services.subscriptions.filters import owner_search
from services.subscriptions.filters.owner_search import ListTitle, SearchResult
from services.subscriptions.imports import records
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork

router = build_router(CONSOLE_PATH)

LISTS_ON_OVERVIEW = 5
EVENTS_ON_OVERVIEW = 5
# Read more events than the page shows, because equal events are merged.
EVENTS_TO_MERGE = 20
_EVENT_TYPES = (
    *(FeedEventType.SUBSCRIPTION_CREATED, FeedEventType.SUBSCRIPTION_CONFIRMED),
    *(FeedEventType.SUBSCRIPTION_LEFT, FeedEventType.SUBSCRIPTION_REMOVED),
    *(FeedEventType.SUBSCRIPTION_EMAIL_OFF, FeedEventType.IMPORT_ENDED),
)
MAX_WARNINGS = 5


@router.get("")
def show_overview(console: Console) -> Response:
    with console.unit_of_work() as uow:
        person = accounts.get_user(uow, console.user_id)
        usage = quotas.list_uses(uow, person)
        page = lists.list_for_user(uow, console.user_id, PageRequest(LISTS_ON_OVERVIEW))
        newest_lists = describe_lists(uow, console.state, page.rows)
        name = person.name
        plan = Plan(person.plan)
        contact = find_plan_contact(uow, plan)
        net = [
            (days, daily_figures.count_owner_growth(uow, console.user_id, days)) for days in (7, 30)
        ]
        warnings = _list_warnings(uow, console.user_id)
        events = list_newest_events(uow, console.caller, only=_EVENT_TYPES, limit=EVENTS_TO_MERGE)
    account = json.loads(ledger.read_account(console.state.resources.database, console.user_id))
    return console.render_page(
        "overview.html",
        name=name,
        plan=plan,
        contact=contact,
        lists=newest_lists,
        has_more=page.next_cursor is not None,
        members=usage[PlanQuota.MEMBERS].used,
        net=net,
        credits=format_credits(Decimal(str(account["balance_credit"]))),
        attention=warnings,
        lately=events[:EVENTS_ON_OVERVIEW],
        quotas=[(label, usage[quota]) for quota, label in QUOTAS.items()],
        steps=_list_next_steps(newest_lists, usage, plan),
    )


def _list_warnings(uow: UnitOfWork, user_id: int) -> list[tuple[str, str]]:
    """Return warnings for the owner, each with the path of a page about it."""
    warnings = []
    for endpoint in webhook_endpoints.list_live_endpoints(uow, user_id):
        if endpoint.state == EndpointState.PAUSED or endpoint.failing_since is not None:
            host = urlsplit(endpoint.url).netloc
            is_paused = endpoint.state == EndpointState.PAUSED
            text = f"The webhook to {host} {'is paused' if is_paused else 'is failing'}."
            warnings.append((text, f"{CONSOLE_PATH}/developers/webhooks/{endpoint.id}"))
    for task in records.list_recent_failures(uow, user_id):
        text = f"The import of {task.filename or 'members'} failed."
        warnings.append((text, f"{CONSOLE_PATH}/imports/{task.id}"))
    return warnings[:MAX_WARNINGS]


def _list_next_steps(
    newest_lists: list[Channel], usage: dict[PlanQuota, QuotaUse], plan: Plan
) -> list[dict[str, Any]]:
    """Return suggestions for a new owner, such as creating the first list."""
    steps = []
    if not newest_lists:
        text = "Create your first list. People subscribe to the list to receive your newsletter."
        steps.append({"label": "Create a list", "path": f"{CONSOLE_PATH}/lists/new", "text": text})
    elif usage[PlanQuota.MEMBERS].used == 0:
        text = f"“{newest_lists[0].title}” has no members yet. Share its sign-up page"
        path = get_list_path(newest_lists[0].id)
        if plan is Plan.FREE:
            # The free plan doesn't allow the owner to add or import members.
            step = {"label": "Show sign-up page", "path": f"{path}/public", "text": f"{text}."}
        else:
            step = {"label": "Add members", "path": path, "text": f"{text} or import members."}
        steps.append(step)
    if usage[PlanQuota.KEYS].used == 0:
        text = "Create an API key to let an app use your account."
        steps.append({"label": "Create an API key", "path": NEW_KEY_PATH, "text": text})
    return steps


@router.get("/find")
async def show_search_results(console: Console, q: str = "") -> Response:
    return await SEARCHES_BY_CALLER.run(console.user_id, partial(_render_search, console, q))


def _render_search(console: ConsoleRequest, q: str) -> Response:
    search_text = q.replace("\0", "")[: owner_search.MAX_SEARCH_CHARACTERS]
    with console.unit_of_work() as uow:
        results = owner_search.search_lists_and_members(uow, console.caller, search_text)
        is_operator = accounts.get_user(uow, console.user_id).is_operator
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
    """Return the list that the example of an API call searches, or a placeholder."""
    if results.lists:
        return results.lists[0].id
    return results.members[0].lists[0].id if results.members else "LIST"


def _list_searchable(results: SearchResult) -> list[ListTitle]:
    """Return the lists in which the owner can search for more matching members."""
    if not results.has_more_members:
        return []
    matching_lists = {each.lists[0].id: each.lists[0] for each in results.members}
    return list(matching_lists.values())
