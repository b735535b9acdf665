from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import orjson
import typer

from cli import orders
from cli.connection import connected
from cli.output import Json, Limit, group, show, show_all
from core.refusals.money import CREDITS_AMOUNT_TEXT
from services.money.credits import ledger, verify
from services.money.credits.verify import LedgerReport
from services.paging import PageRequest
from services.people import accounts

FAULTY = 1

app = group("Credits and their ledger.")
app.add_typer(orders.app, name="orders")

Email = Annotated[str, typer.Argument(metavar="EMAIL")]
Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="At most four decimals.")]
Reason = Annotated[
    str, typer.Option(help="What the credits are for; kept as the entry's source_id.")
]


@app.command("grant")
def grant(email: Email, amount: Amount, reason: Reason = "grant", as_json: Json = False) -> None:
    """Give a user credits."""
    _book(ledger.grant, email, amount, reason, as_json=as_json)


@app.command("balance")
def balance(email: Email, as_json: Json = False) -> None:
    """Show a user's credits."""
    with connected() as resources:
        with resources.unit_of_work() as uow:
            user_id = accounts.get_by_email(uow, email).id
        account = ledger.balance(resources.database, user_id)
    show(orjson.loads(account), as_json=as_json)


@app.command("ledger")
def show_ledger(
    email: Email,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show the entries of a user's credit account, newest first."""
    with connected() as resources:
        with resources.unit_of_work() as uow:
            user_id = accounts.get_by_email(uow, email).id
        found = ledger.page(resources.database, user_id, PageRequest(limit))
    entries = [orjson.loads(entry) for _, entry in found.rows]
    show_all(entries if as_json else [_brief(each) for each in entries], as_json=as_json)


# Typer must not take a negative amount for an option.
@app.command("adjust", context_settings={"ignore_unknown_options": True})
def adjust(email: Email, amount: Amount, reason: Reason = "adjust", as_json: Json = False) -> None:
    """Correct a user's balance by an amount, which may be negative."""
    _book(ledger.adjust, email, amount, reason, as_json=as_json)


def _book(
    enter: Callable[..., str], email: str, amount: str, reason: str, *, as_json: bool
) -> None:
    with connected() as resources:
        with resources.unit_of_work() as uow:
            user_id = accounts.get_by_email(uow, email).id
        try:
            credits_ = Decimal(amount)
        except InvalidOperation:
            raise CREDITS_AMOUNT_TEXT(amount=amount) from None
        entry = enter(resources.database, user_id, credits_, source_id=reason)
    show(orjson.loads(entry), as_json=as_json)


@app.command("verify")
def verify_ledger(
    full: Annotated[
        bool, typer.Option("--full", help="Read everything, and not only what is new.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check all balances, debts, hashes and orders. With faults, show them and exit with code 1.

    It goes on from where the last run ended without a fault.
    """
    with connected() as resources:
        report = verify.verify(resources, full=full)
    if not as_json:
        _show_read(report)
    if report.faults or as_json:
        show_all([asdict(fault) for fault in report.faults], as_json=as_json)
    else:
        typer.echo("All balances, debts, hashes and orders hold.")
    if report.faults:
        raise typer.Exit(FAULTY)


def _brief(entry: dict[str, Any]) -> dict[str, Any]:
    names = "seq created_at action delta_credit balance_after source_id order_id"
    return {name: entry[name] for name in names.split()}


def _show_read(report: LedgerReport) -> None:
    typer.echo(
        f"Read: {report.entries} entries of {report.accounts} accounts,"
        f" {report.resumed} of them from their checkpoints;"
        f" {'all' if report.orders is None else report.orders} orders."
    )
    if report.keys_gone:
        typer.echo(
            f"{report.keys_gone} checkpoints are signed under keys that are no longer in"
            " PRESSROOM_SECRET_KEYS: what they stand for was read as a whole."
        )
