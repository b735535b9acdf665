"""The commands of ``pressroom credits``, for accounts, the ledger, and orders."""

from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import orjson
import typer

from cli.connection import open_command_resources
from cli.output import Email, Json, Limit, create_group, print_record, print_records, select_fields
from core import clock
from core.errors.money import CREDITS_AMOUNT_TEXT, ORDER_RESOLUTION
from models import OrderStatus, PaymentOrder, Resolution
from services.accounts import accounts
from services.credits import ledger, ledger_pages, orders, settlement, verify
from services.paging import PageRequest

FAULTY = 1

orders_app = create_group("Manage credit orders.")

OrderId = Annotated[int, typer.Argument(metavar="ORDER")]


@orders_app.command("list")
def list_orders(
    status: Annotated[
        OrderStatus | None, typer.Option(help="Show only orders with this status.")
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show the orders of all users, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        page = orders.list_orders_of_all_users(uow, PageRequest(limit), status=status)
        print_records([_brief_order(order) for order in page.rows], as_json=as_json)


@orders_app.command("show")
def show_order(order_id: OrderId, as_json: Json = False) -> None:
    """Show an order with its payment and history."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        order = settlement.lock_order(uow, order_id)
        history = [
            f"{clock.format_timestamp(each.created_at)} {each.to_status} ({each.via})"
            for each in orders.list_changes(uow, order_id)
        ]
        events = [f"{each.event_id} {each.type}" for each in orders.list_events(uow, order_id)]
        print_record(_whole_order(order) | {"history": history, "events": events}, as_json=as_json)


@orders_app.command("review")
def review_order(
    order_id: OrderId,
    credit: Annotated[
        bool, typer.Option("--credit", help="Add the ordered credits to the user's balance.")
    ] = False,
    refunded: Annotated[
        bool, typer.Option("--refunded", help="Record that the payer has received a full refund.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Resolve an order whose payment doesn't match the order."""
    if credit == refunded:
        raise ORDER_RESOLUTION()
    resolution = Resolution.CREDIT if credit else Resolution.REFUNDED
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        order = settlement.resolve_order(uow, order_id, resolution)
        uow.session.refresh(order)
        print_record(_whole_order(order), as_json=as_json)


def _brief_order(order: PaymentOrder) -> dict[str, Any]:
    return {
        "order_id": order.id,
        **select_fields(order, "status user_id channel"),
        "amount": f"{order.amount.normalize():f}",
        "currency": order.currency,
        "credit_amount": f"{order.credit_amount.normalize():f}",
        "created_at": order.created_at,
    }


def _whole_order(order: PaymentOrder) -> dict[str, Any]:
    return {
        **_brief_order(order),
        **select_fields(order, "session_id payment_id paid_at"),
        "refunded_amount": f"{order.refunded_amount:f}",
        **select_fields(order, "dispute mismatch resolution"),
        "credited": f"{order.credited.normalize():f}",
        "taken": f"{order.taken.normalize():f}",
        **select_fields(order, "error expires_at next_check_at"),
    }


app = create_group("Manage credits and the credit ledger.")
app.add_typer(orders_app, name="orders")

Amount = Annotated[
    str,
    typer.Argument(metavar="AMOUNT", help="The number of credits, with at most four decimals."),
]
Reason = Annotated[str, typer.Option(help="The reason, which is stored as the entry's source_id.")]


@app.command("grant")
def grant(email: Email, amount: Amount, reason: Reason = "grant", as_json: Json = False) -> None:
    """Add credits to a user's balance."""
    _book(ledger.grant_credits, email, amount, reason, as_json=as_json)


@app.command("balance")
def balance(email: Email, as_json: Json = False) -> None:
    """Show a user's credit balance."""
    with open_command_resources() as resources:
        with resources.unit_of_work() as uow:
            account_id = accounts.get_account_by_email(uow, email)
        account = ledger.read_account(resources.database, account_id)
    print_record(orjson.loads(account), as_json=as_json)


@app.command("ledger")
def show_ledger(email: Email, limit: Limit = 50, as_json: Json = False) -> None:
    """Show the ledger entries of a user, newest first."""
    with open_command_resources() as resources:
        with resources.unit_of_work() as uow:
            account_id = accounts.get_account_by_email(uow, email)
        page = ledger_pages.list_entries(resources.database, account_id, PageRequest(limit))
    entries = [orjson.loads(entry) for _, entry in page.rows]
    if not as_json:
        names = "seq created_at action delta_credit balance_after source_id order_id"
        entries = [{name: each[name] for name in names.split()} for each in entries]
    print_records(entries, as_json=as_json)


# Typer reads a negative amount as an option, so allow unknown options.
@app.command("adjust", context_settings={"ignore_unknown_options": True})
def adjust(email: Email, amount: Amount, reason: Reason = "adjust", as_json: Json = False) -> None:
    """Correct a user's balance by an amount, which can be negative."""
    _book(ledger.adjust_balance, email, amount, reason, as_json=as_json)


def _book(
    enter: Callable[..., str], email: str, amount: str, reason: str, *, as_json: bool
) -> None:
    with open_command_resources() as resources:
        with resources.unit_of_work() as uow:
            account_id = accounts.get_account_by_email(uow, email)
        try:
            credits_ = Decimal(amount)
        except InvalidOperation:
            raise CREDITS_AMOUNT_TEXT(amount=amount) from None
        entry = enter(resources.database, account_id, credits_, source_id=reason)
    print_record(orjson.loads(entry), as_json=as_json)


@app.command("verify")
def verify_ledger(
    full: Annotated[
        bool, typer.Option("--full", help="Check everything, not only new entries.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check all balances, debts, hashes and orders. The exit code is 1 if a check fails.

    The check continues where the last successful run ended.
    """
    with open_command_resources() as resources:
        report = verify.verify_ledger(resources, full=full)
    if not as_json:
        typer.echo(
            f"Checked {report.entries} entries of {report.accounts} accounts ({report.resumed} "
            "accounts from their checkpoints) and "
            f"{'all' if report.orders is None else report.orders} orders."
        )
    if report.faults or as_json:
        print_records([asdict(fault) for fault in report.faults], as_json=as_json)
    else:
        typer.echo("All balances, debts, hashes and orders are correct.")
    if report.faults:
        raise typer.Exit(FAULTY)
