"""Tests of the mail about a low balance of credits."""

import httpx2

from devstack.harness.stack import Owner, Stack
from tests.support.credits import credits
from tests.support.http.replies import data
from tests.support.lists.subscribers import await_mails
from tests.support.stack.maintenance import run_maintenance

LOW_BALANCE_PATH = "/auxilia/credits/low-balance"
MAINTENANCE = "credits.low_balance"
SUBJECT = "Your balance of credits is low"


def test_low_balance_is_mailed_at_most_once_a_day(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    credits.grant(stack, owner.user_id, "150")
    data(credits.consume(client, "50"))
    run_maintenance(stack, MAINTENANCE)
    assert stack.mails(owner.email) == []
    data(credits.consume(client, "0.5"))
    data(credits.consume(client, "0.5"))
    run_maintenance(stack, MAINTENANCE)
    [mail] = await_mails(stack, owner.email)
    assert mail["subject"] == SUBJECT
    assert "Your balance is 99 credits." in mail["text"]
    assert "/console/credits" in mail["text"]
    credits.grant(stack, owner.user_id, "10")
    data(credits.consume(client, "20"))
    run_maintenance(stack, MAINTENANCE)
    await_mails(stack, owner.email, 1)
    stack.query(
        "UPDATE account_mails SET created_at = now() - interval '25 hours' WHERE user_id = %s",
        owner.user_id,
    )
    credits.grant(stack, owner.user_id, "50")
    data(credits.consume(client, "60"))
    run_maintenance(stack, MAINTENANCE)
    await_mails(stack, owner.email, 2)


def test_owner_who_bought_credits_in_time_gets_no_mail(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    run_maintenance(stack, MAINTENANCE)
    # The next run must not begin before the owner buys credits.
    stack.query(
        "UPDATE maintenance SET due_at = now() + interval '1 hour' WHERE name = %s", MAINTENANCE
    )
    credits.grant(stack, owner.user_id, "100")
    data(credits.consume(client, "1"))
    credits.grant(stack, owner.user_id, "100")
    run_maintenance(stack, MAINTENANCE)
    assert stack.mails(owner.email) == []
    assert stack.query(
        "SELECT low_mail_due FROM credit_accounts WHERE user_id = %s", owner.user_id
    ) == [(False,)]


def test_limit_of_0_turns_the_mail_off(stack: Stack, client: httpx2.Client, owner: Owner) -> None:
    data(client.put(LOW_BALANCE_PATH, json={"below_credit": 0}))
    credits.grant(stack, owner.user_id, "100")
    data(credits.consume(client, "100"))
    run_maintenance(stack, MAINTENANCE)
    assert stack.mails(owner.email) == []
