"""An owner's orders of credits: all of them, one as it stands, and its receipt."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.page_sessions import redirect_to_path
from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_credits.amounts import credits_text
from api.console.of_credits.shown_orders import ShownOrder
from api.console.visits import ConsoleVisit, Visit
from api.limits.bulkheads import MONEY
from api.parameters import Cursor, PathId
from core.refusals.money import ORDER_NOT_FOUND
from services.money.topups import orders
from services.money.topups.return_urls import CONSOLE_RETURN_PATH
from services.paging import PageRequest
from services.people import accounts

# No operations of the API, so not in its document.
PATH = f"{CONSOLE_PATH}/credits/orders"
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

ORDERS_ON_PAGE = 30


@router.get(PATH)
@MONEY.threaded
def show_orders(visit: Visit, cursor: Cursor = None) -> Response:
    """The owner's orders, those that they claimed too, newest first."""
    with visit.unit_of_work() as uow:
        wanted = PageRequest(ORDERS_ON_PAGE, cursor=cursor)
        found = orders.list_of(uow, visit.user_id, wanted, status=None)
        shown = [ShownOrder(order) for order in found.rows]
    return visit.page("orders.html", orders=shown, next_cursor=found.next_cursor, cursor=cursor)


@router.get(f"{PATH}/{{order_id}}")
@MONEY.threaded
def show_order(visit: Visit, order_id: PathId) -> Response:
    """One order as it is now, whatever a URL says of it."""
    return visit.page("order.html", order=_own(visit, order_id))


@router.get(f"{PATH}/{{order_id}}/receipt")
@MONEY.threaded
def show_receipt(visit: Visit, order_id: PathId) -> Response:
    """What was bought and paid, as a page to print; raises where nothing was."""
    order = _own(visit, order_id)
    if not order.has_receipt:
        raise ORDER_NOT_FOUND()
    with visit.unit_of_work() as uow:
        person = accounts.get(uow, visit.user_id)
        name, email = person.name, person.email
    return visit.page(
        "receipt.html",
        order=order,
        rate=credits_text(order.order.credits_per_usd),
        name=name,
        email=email,
        host=visit.state.resources.settings.public_url.host,
    )


@router.get(CONSOLE_RETURN_PATH)
async def return_from_checkout(visit: Visit, order_id: PathId | None = None) -> Response:
    """Lead who comes back from the payment to their order; the state in the URL counts nothing."""
    return redirect_to_path(visit.state, PATH if order_id is None else f"{PATH}/{order_id}")


def _own(visit: ConsoleVisit, order_id: int) -> ShownOrder:
    """Raises ``order.not_found``."""
    with visit.unit_of_work() as uow:
        return ShownOrder(orders.get(uow, visit.user_id, order_id))
