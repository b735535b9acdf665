"""For operators: orders of credits, and the decision on those that are in review."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.navigation import OPERATORS
from api.console.of_operators.operator_visits import OperatorFormVisit, OperatorVisit
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit
from api.limits.bulkheads import MONEY
from api.parameters import Cursor, PathId
from core.errors import DomainError
from models import OrderStatus, Resolution
from services.money.topups import orders
from services.operating import operator_acts
from services.paging import PageRequest

# No operations of the API, so not in its document.
PATH = f"{OPERATORS.path}/orders"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)

ORDERS_ON_PAGE = 50
_ANY = "any"
_UNDECIDED = TypedForm(wrong={"resolution": "Choose one of the two."}, status=422)
_DONE = {
    Resolution.CREDIT: "The order is settled: its credits are given.",
    Resolution.REFUNDED: "The order counts as refunded.",
}


@router.get("")
@MONEY.threaded
def show_orders(
    visit: OperatorVisit, status: str = OrderStatus.REVIEW, cursor: Cursor = None
) -> Response:
    """The orders of all users, newest first; those in review unless others are asked for."""
    chosen = next((each for each in OrderStatus if each == status), None)
    with visit.unit_of_work() as uow:
        found = orders.list_all(uow, PageRequest(ORDERS_ON_PAGE, cursor=cursor), status=chosen)
    return visit.page(
        "operator_orders.html",
        orders=found.rows,
        chosen=chosen or _ANY,
        statuses=[*((each.value, each.value) for each in OrderStatus), (_ANY, "any")],
        form=TypedForm({"status": chosen or _ANY}),
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.get("/{order_id}")
@MONEY.threaded
def show_order(visit: OperatorVisit, order_id: PathId) -> Response:
    return _page(visit, order_id, TypedForm())


@router.post("/{order_id}")
@MONEY.threaded
def resolve_order(visit: OperatorFormVisit, order_id: PathId) -> Response:
    """Settle an order that is in review."""
    chosen = next((each for each in Resolution if each == visit.form.get("resolution")), None)
    if chosen is None:
        return _page(visit, order_id, _UNDECIDED)
    try:
        with visit.unit_of_work() as uow:
            operator_acts.resolve_order(uow, visit.caller, order_id, chosen)
    except DomainError as error:
        return _page(visit, order_id, visit.refused(error))
    return visit.done(f"{PATH}/{order_id}", _DONE[chosen])


def _page(visit: ConsoleVisit, order_id: int, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        order = orders.get_any(uow, order_id)
        changes, events = orders.changes(uow, order_id), orders.events(uow, order_id)
    return visit.form_page("operator_order.html", form, order=order, changes=changes, events=events)
