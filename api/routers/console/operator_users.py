"""For operators: users with their plans."""

from collections.abc import Mapping

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.page_sessions import redirect_to_path
from api.access.requirements import PUBLIC
from api.console.navigation import OPERATORS
from api.console.of_operators.operator_visits import OperatorFormVisit, OperatorVisit
from api.console.quota_words import QUOTAS
from api.console.typed_forms import TypedForm, wrong_field
from api.console.visits import ConsoleVisit
from api.errors import STATUS_OF
from api.limits.bulkheads import RECORDS
from api.parameters import Cursor, PathId
from core.errors import DomainError, Kind
from models import Plan
from services.access import quotas
from services.events import event_reading
from services.operating import operator_acts, user_accounts
from services.paging import PageRequest
from services.people import accounts

# No operations of the API, so not in its document.
PATH = f"{OPERATORS.path}/users"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)

USERS_ON_PAGE = 50
EVENTS_ON_PAGE = 20
_PLACES = {"email.invalid": "user"}


@router.get("")
@RECORDS.threaded
def show_users(visit: OperatorVisit, user: str | None = None, cursor: Cursor = None) -> Response:
    """Owners of lists; or, by an address or id, to the page of that user."""
    if user is None or not user.strip():
        return _list(visit, TypedForm(), cursor)
    try:
        with visit.unit_of_work() as uow:
            user_id = user_accounts.named(uow, user.strip()).id
    except DomainError as error:
        return _list(visit, _not_found(user, error), cursor)
    return redirect_to_path(visit.state, f"{PATH}/{user_id}")


@router.get("/{user_id}")
@RECORDS.threaded
def show_user(visit: OperatorVisit, user_id: PathId) -> Response:
    return _user(visit, user_id)


@router.post("/{user_id}")
@RECORDS.threaded
def change_plan(visit: OperatorFormVisit, user_id: PathId) -> Response:
    try:
        plan = _typed_plan(visit.form)
    except DomainError as error:
        return _user(visit, user_id, visit.refused(error))
    with visit.unit_of_work() as uow:
        is_changed = operator_acts.change_plan(uow, visit.caller, user_id, plan)
    notice = f"They are on the {plan} plan now." if is_changed else "They were on it already."
    return visit.done(f"{PATH}/{user_id}", notice)


def _typed_plan(typed: Mapping[str, str]) -> Plan:
    plan = typed.get("plan")
    if plan not in tuple(Plan):
        raise wrong_field("plan", "must be one of those that the page offers")
    return Plan(plan)


def _user(visit: ConsoleVisit, user_id: int, form: TypedForm | None = None) -> Response:
    settings = visit.state.resources.settings
    with visit.unit_of_work() as uow:
        user = accounts.get(uow, user_id)
        account = user_accounts.account_of(uow, user)
        used = quotas.uses(uow, settings, user)
        events = event_reading.page(uow, user.id, PageRequest(EVENTS_ON_PAGE)).rows
    return visit.form_page(
        "operator_user.html",
        form or TypedForm({"plan": account.user.plan}),
        account=account,
        user=account.user,
        plans=[(plan.value, plan.value) for plan in Plan],
        quotas=[(label, used[quota]) for quota, label in QUOTAS.items()],
        events=events,
    )


def _not_found(typed: str, error: DomainError) -> TypedForm:
    form = TypedForm({"user": typed})
    if error.kind is Kind.NOT_FOUND:
        return TypedForm(form.typed, {"user": error.message}, status=STATUS_OF[error.kind])
    return form.refused(error, _PLACES)


def _list(visit: ConsoleVisit, form: TypedForm, cursor: str | None) -> Response:
    with visit.unit_of_work() as uow:
        found = accounts.owners_of_lists(uow, PageRequest(USERS_ON_PAGE, cursor=cursor))
    return visit.form_page(
        "operator_users.html",
        form,
        owners=found.rows,
        next_cursor=found.next_cursor,
        cursor=cursor,
    )
