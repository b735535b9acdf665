"""Tests of the console pages for credits: the balance, the ledger, orders and receipts."""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.credits import topups
from tests.support.credits.credits import consume, grant
from tests.support.credits.payments import SandboxPayments
from tests.support.http.replies import data
from tests.support.people.consoles import (
    OwnerAtConsole,
    calls_of,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)

# The option of the order form to type any number of credits, instead of choosing a pack.
ANY_NUMBER = {"pack": "other"}
CREDITS_PATH = "/console/credits"
BUY_PATH = "/console/credits/buy"
ORDERS_PATH = "/console/credits/orders"


def read_ledger(text: str) -> list[list[str]]:
    """Return the rows of the ledger without the header and the column for the time."""
    return [row[:4] for row in rows_of(text) if row[0] != "Type"]


def read_payment_url(text: str) -> str:
    [url] = re.findall(r'<a class="button" id="pay" href="([^"]*)">Pay ', text)
    return str(url)


def test_console_credits_pages_explain_the_empty_state_and_show_exchange_rates(
    console: OwnerAtConsole,
) -> None:
    text = console.see(CREDITS_PATH)
    assert "<b>0</b> credits" in text
    assert "No credits yet" in text
    assert "No orders yet" in console.see(ORDERS_PATH)
    [row] = [row for row in rows_of(console.see(BUY_PATH)) if row[0] == "EUR"]
    assert row == ["EUR", "0.92 EUR", "0.50 EUR", "999,999.99 EUR"]
    assert ["JPY", "150 JPY", "100 JPY", "99,999,999 JPY"] in rows_of(console.see(BUY_PATH))


def test_console_sells_credits_and_the_receipt_shows_a_refund(
    console: OwnerAtConsole, sandbox_payments: SandboxPayments, stack: Stack
) -> None:
    text = console.do(BUY_PATH, credit_amount="1,234.5", currency="EUR", **ANY_NUMBER)
    [(order_id, status)] = stack.query(
        "SELECT id, status FROM payment_orders WHERE user_id = %s", console.owner.user_id
    )
    path = f"{ORDERS_PATH}/{order_id}"
    assert (heading(text), status) == ("1,234.5 credits for 11.36 EUR", "pending")
    assert f"Order {order_id}, created" in text
    assert "Pay 11.36 EUR" in text
    console.see(f"{path}/receipt", 404)

    assert "Waiting for your payment</h2>" in console.see(path)
    # The payment provider redirects the browser to a page that requests the order's state.
    redirect = console.visitor.client.get(sandbox_payments.pay(read_payment_url(text)))
    assert redirect.status_code == 303
    location = urlsplit(redirect.headers["location"])
    assert location.path == f"{CREDITS_PATH}/returned"
    reply = console.visitor.get(f"{location.path}?{location.query}")
    text = console.see(urlsplit(reply.headers["location"]).path)
    assert "Paid</h2>" in text
    assert "</time>. The credits are in your balance." in text
    assert "every 5s" not in text
    text = console.see(CREDITS_PATH)
    assert "<b>1,234.5</b> credits" in text
    assert read_ledger(text) == [["Bought", f"Order {order_id}", "+1,234.5", "1,234.5"]]

    sandbox_payments.refund(int(str(order_id)), 300)
    eventually(lambda: "3.00 EUR" in console.see(path), what="the refund")
    text = console.see(f"{path}/receipt")
    assert heading(text) == f"Receipt {order_id}"
    rows = rows_of(text)
    assert rows[1] == ["1,234.5 credits (100 credits per US dollar)", "11.36 EUR"]
    assert [row[1] for row in rows[2:]] == ["\N{MINUS SIGN}3.00 EUR", "8.36 EUR"]
    order_rows = rows_of(console.see(ORDERS_PATH))
    [row] = [row for row in order_rows if row[0].endswith(f"order {order_id}")]
    assert row[0].startswith("1,234.5 credits ")
    assert [*row[1:4], row[5]] == ["Paid", "11.36 EUR", "3.00 EUR", "Receipt"]
    assert "Removed by a refund" in console.see(CREDITS_PATH)


def test_console_shows_the_price_of_each_pack_and_orders_the_chosen_pack(
    console: OwnerAtConsole,
) -> None:
    text = console.see(BUY_PATH)
    for label, price in (("500", "5.00 USD"), ("1,000", "10.00 USD"), ("5,000", "50.00 USD")):
        assert f'<span>{label} credits<span class="hint">{price}' in text
    # If the user typed a number of credits and then chose a pack, the typed number is ignored.
    text = console.do(BUY_PATH, pack="1000", credit_amount="7", currency="USD")
    assert heading(text) == "1,000 credits for 10.00 USD"


def test_console_order_page_reports_an_expired_or_reviewed_order(
    console: OwnerAtConsole, sandbox_payments: SandboxPayments, stack: Stack
) -> None:
    console.do(BUY_PATH, amount="5.00", **ANY_NUMBER)
    [(expired_order_id,)] = stack.query(
        "SELECT id FROM payment_orders WHERE user_id = %s", console.owner.user_id
    )
    assert isinstance(expired_order_id, int)
    topups.expire_order(stack, expired_order_id)
    topups.poll_now(stack, expired_order_id)
    topups.await_status(stack, expired_order_id, "expired")
    text = console.see(f"{ORDERS_PATH}/{expired_order_id}")
    assert "Expired</h2>\n<p>The order wasn’t paid within an hour." in text
    assert "Create a new order" in text

    payment_url = read_payment_url(console.do(BUY_PATH, credit_amount="500", **ANY_NUMBER))
    sandbox_payments.alter(payment_url, amount=1)
    sandbox_payments.pay(payment_url)
    eventually(lambda: "Under review" in console.see(ORDERS_PATH), what="the review")
    assert "<b>0</b> credits" in console.see(CREDITS_PATH)


def test_orders_that_wait_for_payment_come_first_and_can_be_paid_from_their_row(
    console: OwnerAtConsole, sandbox_payments: SandboxPayments
) -> None:
    first_url = read_payment_url(console.do(BUY_PATH, credit_amount="500", **ANY_NUMBER))
    paid_url = read_payment_url(console.do(BUY_PATH, credit_amount="700", **ANY_NUMBER))
    sandbox_payments.pay(paid_url)
    eventually(lambda: ">Paid</span>" in console.see(ORDERS_PATH), what="the payment")
    text = console.see(ORDERS_PATH)
    rows = [(row[0].split(" ")[0], row[-1]) for row in rows_of(text)[1:]]
    assert rows == [("500", "Pay"), ("700", "Receipt")]
    assert f'<a href="{first_url}"' in text
    # A record shows its date, because a relative time is wrong on a printed or saved page.
    today = datetime.now(UTC)
    assert re.search(rf">{today.day} {today:%b %Y}, \d\d:\d\d UTC \(just now\)</time>", text)


def test_console_shows_order_errors_next_to_their_fields(
    console: OwnerAtConsole, stack: Stack
) -> None:
    for field_name, invalid_value in (
        ("credit_amount", "1,2"),
        ("credit_amount", "1"),
        ("amount", "0.10"),
    ):
        form_values = {field_name: invalid_value, "currency": "GBP", **ANY_NUMBER}
        reply = console.send(BUY_PATH, **form_values)
        text = read_page(reply, 422)
        assert read_error(text, field_name), invalid_value
        assert "body." not in text
        [(_, form)] = forms_of(reply)
        assert (form[field_name], form["currency"]) == (invalid_value, "GBP")
    assert read_error(read_page(console.send(BUY_PATH, **ANY_NUMBER), 422), "credit_amount")
    text = read_page(console.send(BUY_PATH, credit_amount="500", amount="5", **ANY_NUMBER), 422)
    assert "either the credits or the amount" in read_error(text, "amount")
    count_orders = "SELECT count(*) FROM payment_orders WHERE user_id = %s"
    assert stack.query(count_orders, console.owner.user_id) == [(0,)]


def test_console_changes_the_low_balance_threshold(console: OwnerAtConsole) -> None:
    text = console.do(CREDITS_PATH, below_credit="1,234.5")
    assert "The alert was saved." in text
    assert 'name="below_credit" type="text" value="1,234.5"' in text
    threshold = data(console.api.get("/auxilia/credits/low-balance"))
    assert threshold == {"below_credit": 1234.5}
    for invalid_value in ("", "many", "0.00001"):
        reply = console.send(CREDITS_PATH, below_credit=invalid_value)
        assert read_error(read_page(reply, 422), "below_credit")
    assert data(console.api.get("/auxilia/credits/low-balance")) == threshold


def test_console_filters_the_credit_ledger_by_kind_and_day(
    console: OwnerAtConsole, stack: Stack
) -> None:
    grant(stack, console.owner.user_id, "100")
    data(consume(console.api, "1.25", "article <1>"))
    text = console.see(CREDITS_PATH)
    assert read_ledger(text)[0] == ["Spent", "article <1>", "\N{MINUS SIGN}1.25", "98.75"]

    today = datetime.now(UTC).date()
    query = {"action": "grant", "from": str(today - timedelta(days=1)), "to": str(today)}
    text = console.see(CREDITS_PATH, **query)
    assert read_ledger(text) == [["Granted by the operator", "test", "+100", "100"]]
    # The credits page shows an example of an API call. The example call returns the same ledger
    # entry as the credits page.
    [call] = calls_of(text)
    [entry] = data(console.api.get(call.path))["items"]
    assert entry["action"] == "grant"
    text = console.see(CREDITS_PATH, **query | {"from": "", "to": str(today - timedelta(days=1))})
    assert "No entries match." in text
    text = console.see(CREDITS_PATH, 422, **query | {"to": "2001-01-01"})
    assert "before the first day" in read_error(text, "to")
    assert read_error(console.see(CREDITS_PATH, 422, **{"from": "soon"}), "from")
    assert read_error(console.see(CREDITS_PATH, 422, action="theft"), "action")


def test_history_merges_consecutive_spending_unless_it_is_filtered(
    console: OwnerAtConsole, stack: Stack
) -> None:
    grant(stack, console.owner.user_id, "100")
    for number in range(4):
        data(consume(console.api, "1.5", f"article {number}"))
    row = ["Spent", "article 3 and 3 more", "\N{MINUS SIGN}6", "94"]
    assert read_ledger(console.see(CREDITS_PATH))[0] == row
    text = console.see(CREDITS_PATH)
    assert "<dt>Connected apps and programs</dt><dd>6</dd>" in text
    # The account is new, so it has spent 6 credits in one day instead of 30 days.
    today = datetime.now(UTC)
    assert f"<p>6 spent since {today.day} {today:%b %Y}. At this rate, the" in text
    assert "lasts\n15 days." in text
    single_rows = read_ledger(console.see(CREDITS_PATH, action="consume"))
    assert [row[1] for row in single_rows] == [f"article {number}" for number in (3, 2, 1, 0)]
