from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.answers import list_responses
from api.auth.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.console_display import QUOTAS
from api.console.navigation import list_path, pages_named
from api.console.visits import Visit
from api.limits.bulkheads import RECORDS
from api.schemas.lists import Channel
from core.settings.notations import PlanQuota
from models import Plan
from services.access import quotas
from services.access.quotas import QuotaUse
from services.accounts import accounts
from services.accounts.mailed_tokens import NEW_KEY_PATH
from services.paging import PageRequest
from services.subscriptions import lists
from services.subscriptions.filters import member_filter

router = APIRouter(prefix=CONSOLE_PATH, dependencies=[PUBLIC], include_in_schema=False)

LISTS_ON_OVERVIEW = 5
LISTS_TO_SEARCH = 10


@router.get("")
@RECORDS.threaded
def show_overview(visit: Visit) -> Response:
    with visit.unit_of_work() as uow:
        person = accounts.get(uow, visit.user_id)
        used = quotas.uses(uow, visit.state.resources.settings, person)
        found = lists.list_of(uow, visit.user_id, PageRequest(LISTS_ON_OVERVIEW))
        newest = list_responses(uow, visit.state, found.rows)
        name, plan = person.name, Plan(person.plan)
    return visit.page(
        "overview.html",
        name=name,
        plan=plan,
        lists=newest,
        has_more=found.next_cursor is not None,
        quotas=[(label, used[quota]) for quota, label in QUOTAS.items()],
        steps=_next_steps(newest, used, plan),
    )


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
        steps.append({"label": "Bring members", "path": list_path(newest[0].id), "text": text})
    if used[PlanQuota.KEYS].used == 0:
        text = "Whatever you do here, an app can do with a key."
        steps.append({"label": "Create an API key", "path": NEW_KEY_PATH, "text": text})
    return steps


@router.get("/find")
@RECORDS.threaded
def show_found(visit: Visit, q: str = "") -> Response:
    sought = q.replace("\0", "")[: member_filter.MAX_SOUGHT_CHARACTERS]
    with visit.unit_of_work() as uow:
        found = member_filter.find(uow, visit.caller, sought)
        some = lists.list_of(uow, visit.user_id, PageRequest(LISTS_TO_SEARCH)).rows
        is_operator = accounts.get(uow, visit.user_id).is_operator
    least = member_filter.MIN_SOUGHT_CHARACTERS
    return visit.page(
        "find.html",
        q=sought,
        found=found,
        pages=pages_named(sought, is_operator=is_operator),
        searchable=some if len(sought.strip()) >= least else [],
    )
