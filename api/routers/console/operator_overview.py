"""For operators: what waits for them, and what should have been done by now."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.navigation import OPERATORS
from api.console.of_operators.operator_visits import OperatorVisit
from api.limits.bulkheads import RECORDS
from models import OrderStatus
from services.deployment_figures import MAX_COUNTED
from services.operating import overdue_work

# No operation of the API, so not in its document.
router = APIRouter(prefix=OPERATORS.path, dependencies=[PUBLIC], include_in_schema=False)

# Those that wait for an operator, or for a payer.
_ORDERS = (OrderStatus.REVIEW, OrderStatus.DISPUTED, OrderStatus.PAID_UNCLAIMED)


@router.get("")
@RECORDS.threaded
def show_overdue_work(visit: OperatorVisit) -> Response:
    work = overdue_work.read(visit.state.resources)
    return visit.page(
        "operator_overview.html",
        work=work,
        late_lanes=[
            each for each in work.lanes if each.oldest_seconds >= overdue_work.MIN_LATE_SECONDS
        ],
        orders=[(status.value, work.figures.orders.get(status, 0)) for status in _ORDERS],
        most=MAX_COUNTED,
    )
