from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.quota_words import QUOTAS
from api.console.visits import Visit
from api.limits.bulkheads import RECORDS
from api.list_answers import list_responses
from api.schemas.lists import Channel
from core.settings.plan_quotas import PlanQuota
from models import Plan
from services.access import quotas
from services.access.quotas import QuotaUse
from services.mailing import lists
from services.paging import PageRequest
from services.people import accounts
from services.people.page_urls import NEW_KEY_PATH

# No operation of the API, so not in its document.
router = APIRouter(prefix=CONSOLE_PATH, dependencies=[PUBLIC], include_in_schema=False)

LISTS_ON_OVERVIEW = 5


@router.get("")
@RECORDS.threaded
def show_overview(visit: Visit) -> Response:
    """What the owner has, and what to do next."""
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
    """What an owner does first, as far as it is not done."""
    steps = []
    if not newest:
        text = "Make your first list. People subscribe to it, and you send to it."
        steps.append({"label": "Make a list", "path": f"{CONSOLE_PATH}/lists/new", "text": text})
    elif used[PlanQuota.MEMBERS].used == 0:
        text = f"“{newest[0].title}” has no members yet. See how people come onto it."
        if plan is Plan.FREE:
            text += " Your plan has sign-up forms; importing members needs the paid plan."
        steps.append({"label": "Bring members", "path": list_path(newest[0].id), "text": text})
    if used[PlanQuota.KEYS].used == 0:
        text = "Whatever you do here, a program can do with a key."
        steps.append({"label": "Make an API key", "path": NEW_KEY_PATH, "text": text})
    return steps
