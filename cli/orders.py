from typing import Annotated, Any

import typer

from cli.connection import connected
from cli.output import Json, Limit, fields, group, show, show_all
from core import clock
from core.refusals.money import ORDER_RESOLUTION
from models import OrderStatus, PaymentOrder, Resolution
from services.money.topups import orders, settlement
from services.paging import PageRequest

app = group("Orders of credits.")

OrderId = Annotated[int, typer.Argument(metavar="ORDER")]


@app.command("list")
def list_orders(
    status: Annotated[
        OrderStatus | None, typer.Option(help="Show only orders with this status.")
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show orders of all users, newest first."""
    with connected() as resources, resources.unit_of_work() as uow:
        found = orders.list_all(uow, PageRequest(limit), status=status)
        show_all([_brief(order) for order in found.rows], as_json=as_json)


@app.command("show")
def show_order(order_id: OrderId, as_json: Json = False) -> None:
    """Show one order, with the facts of its payment and the history of its status."""
    with connected() as resources, resources.unit_of_work() as uow:
        order = settlement.lock(uow, order_id)
        history = [
            f"{clock.iso(each.created_at)} {each.to_status} ({each.via})"
            for each in orders.changes(uow, order_id)
        ]
        events = [f"{each.event_id} {each.type}" for each in orders.events(uow, order_id)]
        show(_whole(order) | {"history": history, "events": events}, as_json=as_json)


@app.command("review")
def review_order(
    order_id: OrderId,
    credit: Annotated[
        bool, typer.Option("--credit", help="Give the user the credits that were ordered.")
    ] = False,
    refunded: Annotated[
        bool, typer.Option("--refunded", help="The payer has all of the money back.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Settle an order that is in review because its payment did not match it."""
    if credit == refunded:
        raise ORDER_RESOLUTION()
    resolution = Resolution.CREDIT if credit else Resolution.REFUNDED
    with connected() as resources, resources.unit_of_work() as uow:
        order = settlement.resolve(uow, order_id, resolution)
        uow.session.refresh(order)
        show(_whole(order), as_json=as_json)


def _brief(order: PaymentOrder) -> dict[str, Any]:
    return {
        "order_id": order.id,
        **fields(order, "status user_id channel"),
        "amount": f"{order.amount.normalize():f}",
        "currency": order.currency,
        "credit_amount": f"{order.credit_amount.normalize():f}",
        "created_at": order.created_at,
    }


def _whole(order: PaymentOrder) -> dict[str, Any]:
    return {
        **_brief(order),
        **fields(order, "session_id payment_id paid_at"),
        "refunded_amount": f"{order.refunded_amount:f}",
        **fields(order, "dispute mismatch resolution"),
        "credited": f"{order.credited.normalize():f}",
        "taken": f"{order.taken.normalize():f}",
        **fields(order, "error expires_at next_check_at"),
    }
