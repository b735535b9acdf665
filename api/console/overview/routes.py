"""The first page of the console, and the search on this page."""

import json
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import QUOTAS, format_credits
from api.console.developers.views import list_newest_events
from api.console.navigation import find_pages, get_list_path
from api.console.requests import Console, build_router
from api.responses.lists import describe_lists
from api.schemas.lists import Channel
from api.state import Transaction
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
from services.subscriptions.filters import member_filter
from services.subscriptions.imports import records
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork

router = build_router(CONSOLE_PATH)

LISTS_ON_OVERVIEW = 5
EVENTS_ON_OVERVIEW, EVENTS_TO_FOLD = 5, 20
_COMINGS_AND_GOINGS = (
    *(FeedEventType.SUBSCRIPTION_CREATED, FeedEventType.SUBSCRIPTION_CONFIRMED),
    *(FeedEventType.SUBSCRIPTION_LEFT, FeedEventType.SUBSCRIPTION_REMOVED),
    *(FeedEventType.SUBSCRIPTION_EMAIL_OFF, FeedEventType.IMPORT_ENDED),
)
MAX_ATTENTION = 5
LISTS_TO_SEARCH = 10


@router.get("")
def show_overview(console: Console) -> Response:
    with console.unit_of_work() as uow:
        person = accounts.get(uow, console.user_id)
        used = quotas.uses(uow, person)
        found = lists.list_of(uow, console.user_id, PageRequest(LISTS_ON_OVERVIEW))
        newest = describe_lists(uow, console.state, found.rows)
        name, plan = person.name, Plan(person.plan)
        net = [(days, daily_figures.owner_growth(uow, console.user_id, days)) for days in (7, 30)]
        attention = _attention(uow, console.user_id)
        lately = list_newest_events(
            uow, console.caller, only=_COMINGS_AND_GOINGS, limit=EVENTS_TO_FOLD
        )
    account = json.loads(ledger.read_account(console.state.resources.database, console.user_id))
    return console.render_page(
        "overview.html",
        name=name,
        plan=plan,
        lists=newest,
        has_more=found.next_cursor is not None,
        members=used[PlanQuota.MEMBERS].used,
        net=net,
        credits=format_credits(Decimal(str(account["balance_credit"]))),
        attention=attention,
        lately=lately[:EVENTS_ON_OVERVIEW],
        quotas=[(label, used[quota]) for quota, label in QUOTAS.items()],
        steps=_next_steps(newest, used, plan),
    )


def _attention(uow: UnitOfWork, user_id: int) -> list[tuple[str, str]]:
    """Return what waits for the owner: words, and the path of the page that has more."""
    found = []
    for each in webhook_endpoints.list_live_endpoints(uow, user_id):
        if each.state == EndpointState.PAUSED or each.failing_since is not None:
            host = urlsplit(each.url).netloc
            is_paused = each.state == EndpointState.PAUSED
            words = f"The webhook to {host} {'is paused' if is_paused else 'fails'}."
            found.append((words, f"{CONSOLE_PATH}/developers/webhooks/{each.id}"))
    for task in records.list_recent_failures(uow, user_id):
        words = f"The import of {task.filename or 'members'} failed."
        found.append((words, f"{CONSOLE_PATH}/imports/{task.id}"))
    return found[:MAX_ATTENTION]


def _next_steps(
    newest: list[Channel], used: dict[PlanQuota, QuotaUse], plan: Plan
) -> list[dict[str, Any]]:
    """Return the first steps of an owner that are not done yet."""
    steps = []
    if not newest:
        text = "Create your first list. People subscribe to it, and you send to it."
        steps.append({"label": "Create a list", "path": f"{CONSOLE_PATH}/lists/new", "text": text})
    elif used[PlanQuota.MEMBERS].used == 0:
        text = f"“{newest[0].title}” has no members yet. See how people come onto it."
        if plan is Plan.FREE:
            text += " Your plan has sign-up forms; importing members needs the paid plan."
        steps.append({"label": "Bring members", "path": get_list_path(newest[0].id), "text": text})
    if used[PlanQuota.KEYS].used == 0:
        text = "Whatever you do here, an app can do with a key."
        steps.append({"label": "Create an API key", "path": NEW_KEY_PATH, "text": text})
    return steps


@router.get("/find")
def show_found(console: Console, uow: Transaction, q: str = "") -> Response:
    sought = q.replace("\0", "")[: member_filter.MAX_SEARCH_CHARACTERS]
    found = member_filter.search_lists_and_members(uow, console.caller, sought)
    some = lists.list_of(uow, console.user_id, PageRequest(LISTS_TO_SEARCH)).rows
    is_operator = accounts.get(uow, console.user_id).is_operator
    least = member_filter.MIN_SEARCH_CHARACTERS
    return console.render_page(
        "find.html",
        q=sought,
        found=found,
        pages=find_pages(sought, is_operator=is_operator),
        searchable=some if len(sought.strip()) >= least else [],
    )
