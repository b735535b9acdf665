"""Tests of the console pages for operators, such as users, orders, jobs and maintenance."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from api.console.console_display import QUOTAS
from core.errors.imports import IMPORT_UNKNOWN_FORMAT
from core.errors.jobs import JOB_GIVEN_UP
from core.settings.notations import PlanQuota
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import Plan
from services.access import sessions
from services.accounts import accounts
from tests.support.commands.running import run_json_command
from tests.support.credits.settled_orders import build_payment_evidence, new_order, settle
from tests.support.http.replies import data
from tests.support.imports.bulk import export, fail_job
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    at_operators_console,
    heading,
    read_error,
    read_page,
    rows_of,
)
from tests.support.people.visiting import SESSION_COOKIE, new_visitor
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.stack.maintenance import resting_maintenance
from tests.support.stack.maintenance_kinds import MAINTENANCE_SECONDS

OPERATORS_PATH = "/console/operators"
OPERATIONS = [operation for operation in CONSOLE_CALLS if OPERATORS_PATH in operation]
MAX_TEXT_BYTES = 40_000


@pytest.fixture(scope="module")
def operator_console(stack: Stack) -> Iterator[OwnerAtConsole]:
    """An operator who is logged in to the console."""
    with at_operators_console(stack) as console:
        yield console


def list_events(owner: OwnerAtConsole, kind: str) -> list[dict[str, Any]]:
    events = data(owner.api.get("/users/me/security-events", params={"limit": 100}))["items"]
    return [each for each in events if each["type"] == kind]


def list_actions(operator: OwnerAtConsole) -> list[dict[str, Any]]:
    """Return the actions that an operator has taken, newest first."""
    return [each["detail"] for each in list_events(operator, "operator.acted")]


def test_operator_pages_return_404_to_everyone_who_is_not_an_operator(
    stack: Stack,
) -> None:
    values = {"user_id": 1, "order_id": 1, "job_id": 1}
    with at_console(stack) as owner:
        assert OPERATORS_PATH not in owner.see("/console")
        not_found_page = owner.see("/console/nowhere", 404)
        for operation in OPERATIONS:
            method, path = operation.format(**values).split(" ")
            # People who aren't operators get a 404 before the form token is checked.
            assert read_page(owner.visitor.client.request(method, path), 404) == not_found_page
        run_json_command(stack, "users", "operator", owner.owner.email, "on")
        # An operator without a second factor must set one up first.
        reply = owner.visitor.get(OPERATORS_PATH)
        assert reply.headers["location"].endswith("/account/factors")
        run_json_command(stack, "users", "operator", owner.owner.email, "off")
        assert owner.see(OPERATORS_PATH, 404) == not_found_page


def test_every_operator_page_has_a_heading_and_names_a_cli_command(
    operator_console: OwnerAtConsole,
) -> None:
    navigation = operator_console.see("/console").split("</nav>")[0]
    assert navigation.count(OPERATORS_PATH) == 1
    paths = re.findall(
        rf'href="[^"]*({OPERATORS_PATH}[^"?]*)"',
        operator_console.see(OPERATORS_PATH).split("<section")[0],
    )
    assert len(set(paths)) == 5
    for path in sorted(set(paths)):
        text = operator_console.see(path)
        assert heading(text)
        assert "<code>pressroom " in text
        assert len(text.encode()) < MAX_TEXT_BYTES


def test_operator_changes_the_plan_of_a_user_and_both_accounts_record_the_change(
    operator_console: OwnerAtConsole, stack: Stack
) -> None:
    with at_console(stack, stack.create_owner(plan=Plan.FREE)) as owner:
        email, user_id = owner.owner.email, owner.owner.user_id
        path = f"{OPERATORS_PATH}/users/{user_id}"
        for name in (email, email.upper(), str(user_id)):
            reply = operator_console.visitor.get(f"{OPERATORS_PATH}/users", user=f" {name} ")
            assert reply.headers["location"].endswith(path)
        text = operator_console.see(f"{OPERATORS_PATH}/users", 404, user="no.such@example.com")
        assert "no.such@example.com" in read_error(text, "user")
        assert read_error(
            operator_console.see(f"{OPERATORS_PATH}/users", 422, user="no address"), "user"
        )
        operator_console.see(f"{OPERATORS_PATH}/users", 404, user="9" * 30)
        new_list(owner.api, slug=f"of-{user_id}")
        rows = rows_of(operator_console.see(f"{OPERATORS_PATH}/users"))
        assert [email, "Free", "1", "0", "0"] in [[row[0], *row[2:6]] for row in rows]
        text = operator_console.see(path)
        assert heading(text) == email
        assert f"of-{user_id}" in text
        usage_section = text.split('id="plan-heading"')[1]
        usage = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", usage_section))
        assert [*usage] == [QUOTAS[quota] for quota in PlanQuota]
        assert usage["Lists"] == "1 of 5"
        text = operator_console.do(path, plan="paid")
        assert "The user is now on the paid plan." in text
        assert data(owner.api.get("/users/me"))["plan"] == "paid"
        assert "The user was already on this plan." in operator_console.do(path, plan="paid")
        for invalid_form in ({}, {"plan": ""}, {"plan": "gold"}):
            text = read_page(operator_console.send(path, 0, ("plan",), **invalid_form), 422)
            assert read_error(text, "plan") == "Choose one of the listed plans."
        assert run_json_command(stack, "users", "plan", email, "free")["plan"] == "free"
        by_command, by_page = list_events(owner, "plan.changed")
        assert by_page["detail"] == {"plan": "paid", "before": "free"}
        assert by_command["detail"] == {"plan": "free", "before": "paid"}
        for event in (by_command, by_page):
            # The event doesn't show the operator's IP address to the other person.
            assert (event["ip"], event["user_agent"]) == (None, None)
            assert event["credential"]["kind"] == "command"
        assert "plan.changed" in operator_console.see(path)
    [action] = list_events(operator_console, "operator.acted")
    assert action["detail"] == {"act": "plan.changed", "user_id": user_id, "plan": "paid"}
    assert action["ip"] == "127.0.0.1"
    assert action["credential"]["kind"] == "session"


def test_operator_sees_the_reports_bounces_and_complaints_of_each_list_of_a_user(
    operator_console: OwnerAtConsole, stack: Stack
) -> None:
    with at_console(stack) as owner:
        quiet_list, reported_list, _ = (new_list(owner.api) for _ in range(3))
        path = f"{OPERATORS_PATH}/users/{owner.owner.user_id}"
        stack.query("INSERT INTO list_reports (list_id) VALUES (%s)", reported_list["id"])
        insert_mailing = (
            "INSERT INTO mailings (id, list_id, created_at, rows, hard_bounced, soft_bounced,"
            " complained) VALUES (%s, %s, now() - %s * interval '1 day', 100, 3, 2, 1)"
        )
        for days in (1, 2, 40):
            mailing_id = 10 * reported_list["id"] + days
            stack.query(insert_mailing, mailing_id, reported_list["id"], days)
        rows = [row for row in rows_of(operator_console.see(path)) if len(row) == 5]
        assert [row[1:] for row in rows] == [
            ["Members", "Reports", "Bounced", "Complained"],
            ["0", "1", "10", "2"],
            ["0", "0", "0", "0"],
            ["0", "0", "0", "0"],
        ]
        assert rows[1][0].endswith(reported_list["slug"])
        assert rows[-1][0].endswith(quiet_list["slug"])


def test_operator_change_requires_a_recent_login_and_a_valid_form_token(
    operator_console: OwnerAtConsole, stack: Stack
) -> None:
    owner = stack.create_owner()
    path = f"{OPERATORS_PATH}/users/{owner.user_id}"
    forged_reply = operator_console.visitor.client.post(
        path, data={"plan": "free", "csrf_token": "x"}
    )
    assert forged_reply.status_code == 403
    with stack.resources.unit_of_work() as uow:
        cookie = sessions.begin_session(uow, operator_console.owner.person_id)
    age_login = "UPDATE user_sessions SET logged_in_at = now() - interval '16 minutes' WHERE id ="
    newest_session = "(SELECT max(id) FROM user_sessions WHERE user_id = %s)"
    stack.query(f"{age_login} {newest_session}", operator_console.owner.user_id)
    with new_visitor(stack) as visitor:
        visitor.client.cookies.set(SESSION_COOKIE, cookie)
        old_session = OwnerAtConsole(operator_console.owner, visitor, operator_console.api)
        # Viewing the page needs no recent login.
        old_session.see(path)
        reply = old_session.send(path, plan="free")
        assert reply.status_code == 303
        assert f"again=yes&next={path.replace('/', '%2F')}" in reply.headers["location"]
    with stack.resources.unit_of_work() as uow:
        assert accounts.get_user(uow, owner.person_id).plan == Plan.PAID


def test_operator_settles_an_order_in_review_only_once_and_the_action_is_recorded(
    operator_console: OwnerAtConsole, stack: Stack
) -> None:
    buyer: Owner = stack.create_owner()
    first_order = new_order(stack, buyer.user_id)
    second_order = new_order(stack, None)
    for terms in (first_order, second_order):
        settle(stack, terms, replace(build_payment_evidence(terms), amount_minor=499))
    new_order(stack, None)
    rows = rows_of(operator_console.see(f"{OPERATORS_PATH}/orders"))
    statuses = [row[1].split()[0] for row in rows if row[0].isdigit()]
    assert "Created" in statuses
    assert statuses == sorted(statuses, key=lambda status: status != "Review")
    [row] = [row for row in rows if row[0] == str(first_order.order_id)]
    mismatch = "amount is 4.99 USD instead of 5.00 USD"
    assert row[1:4] == [f"Review {mismatch}", "5.00 USD", "500"]
    assert row[4:7:2] == [buyer.email, "Decide"]
    assert f"{OPERATORS_PATH}/orders?status=review" in operator_console.see(OPERATORS_PATH)
    path = f"{OPERATORS_PATH}/orders/{first_order.order_id}"
    assert mismatch in operator_console.see(path)
    text = read_page(operator_console.send(path), 422)
    assert "Choose one of the two options." in text
    order_page = operator_console.visitor.get(path)
    text = operator_console.do(path, resolution="credit")
    assert "the credits were added" in text
    assert [row[:2] for row in rows_of(text)[-1:]] == [["Paid", "Operator"]]
    [token] = re.findall(r'name="csrf_token" value="([^"]+)"', order_page.text)
    repeated_form = {"csrf_token": html.unescape(token), "resolution": "refunded"}
    assert f"Order {first_order.order_id} is not in review." in read_page(
        operator_console.visitor.client.post(path, data=repeated_form), 409
    )
    with stack.client(buyer.key) as api:
        assert data(api.get("/auxilia/credits/balance"))["balance_credit"] == 500
    operator_console.do(f"{OPERATORS_PATH}/orders/{second_order.order_id}", resolution="refunded")
    refunded_rows = rows_of(operator_console.see(f"{OPERATORS_PATH}/orders", status="refunded"))
    assert str(second_order.order_id) in [row[0] for row in refunded_rows]
    assert list_actions(operator_console)[:2] == [
        {"act": "order.refunded", "order_id": second_order.order_id},
        {"act": "order.credited", "order_id": first_order.order_id},
    ]
    operator_console.see(f"{OPERATORS_PATH}/orders/12345", 404)


def test_operator_finds_and_cancels_and_retries_jobs_of_any_user(
    stack_without_workers: Stack,
) -> None:
    with (
        at_operators_console(stack_without_workers) as operator,
        at_console(stack_without_workers) as owner,
    ):
        list_id = new_list(owner.api)["id"]
        for _ in range(2):
            data(export(owner.api, list_id, "members", Prefer="respond-async"), 202)
        failed_job_id, cancelled_job_id = [
            each["id"] for each in data(owner.api.get("/jobs", params={"limit": 2}))["items"]
        ]
        text = operator.see(f"{OPERATORS_PATH}/jobs", status="queued", queue="export")
        row_names = {
            f"Export of members, job {job_id} queue export"
            for job_id in (failed_job_id, cancelled_job_id)
        }
        assert row_names <= {row[0] for row in rows_of(text)}
        [queue_row] = [row for row in rows_of(text) if row[0] == "export"]
        assert int(queue_row[1]) >= 2
        text = operator.see(f"{OPERATORS_PATH}/jobs", status="queued", queue="media")
        assert row_names.isdisjoint(row[0] for row in rows_of(text))
        assert "The job stops at its next step." in operator.do(
            f"{OPERATORS_PATH}/jobs/{cancelled_job_id}", act="cancel"
        )
        assert data(owner.api.get(f"/jobs/{cancelled_job_id}"))["status"] == "cancelled"
        fail_job(stack_without_workers, failed_job_id, JOB_GIVEN_UP(reason="It broke.", hours=24))
        rows = rows_of(operator.see(f"{OPERATORS_PATH}/jobs"))
        [row] = [
            each for each in rows if each[0].startswith(f"Export of members, job {failed_job_id} ")
        ]
        assert row[1] == "Failed"
        assert "It broke." in row[2]
        assert row[3] == owner.owner.email
        assert row[5] == "Retry"
        assert re.search(r"\d+ jobs?</a> failed in the last 24 hours", operator.see(OPERATORS_PATH))
        path = f"{OPERATORS_PATH}/jobs/{failed_job_id}"
        text = operator.see(path)
        assert "It broke." in text
        assert '<button name="act" value="retry">' in text
        assert "The job will run again." in operator.do(path, act="retry")
        assert data(owner.api.get(f"/jobs/{failed_job_id}"))["status"] == "queued"
        assert list_actions(operator) == [
            {"act": "job.retried", "job_id": failed_job_id},
            {"act": "job.cancelled", "job_id": cancelled_job_id},
        ]
        operator.see(f"{OPERATORS_PATH}/jobs/999999999", 404)
        list_path = f"/lists/{list_id}/imports"
        files = {"file": ("members.pdf", b"%PDF-1.7")}
        import_job_id = data(owner.api.post(list_path, files=files), 202)["id"]
        fail_job(stack_without_workers, import_job_id, IMPORT_UNKNOWN_FORMAT(what="a PDF"))
        [row] = [
            each
            for each in rows_of(operator.see(f"{OPERATORS_PATH}/jobs"))
            if each[0].startswith(f"Import of members, job {import_job_id} ")
        ]
        assert len(row) == 5
        text = operator.see(f"{OPERATORS_PATH}/jobs/{import_job_id}")
        assert "members.pdf" in text
        assert "This job can’t be retried." in text
        assert 'value="retry"' not in text


def test_operator_sees_maintenance_tasks_and_starts_a_maintenance_task(
    operator_console: OwnerAtConsole, stack: Stack
) -> None:
    path = f"{OPERATORS_PATH}/maintenance"
    name = "maintenance.sweep_uploads"
    with resting_maintenance(stack):
        set_fault = (
            "UPDATE maintenance SET last_error = 'OSError: no room' WHERE name = 'credits.verify'"
        )
        stack.query(set_fault)
        text = operator_console.see(path)
        rows = {row[0].split()[-1]: row for row in rows_of(text)}
        assert [*rows][1] == "credits.verify"
        assert rows.keys() - {"Task"} == MAINTENANCE_SECONDS.keys()
        assert [name for name, row in rows.items() if row[0] == f"{name} {name}"] == []
        assert rows["credits.verify"][2].endswith("OSError: no room")
        assert rows["maintenance.purge"][:2] == [
            "Delete data after its retention period maintenance.purge",
            "1 hour",
        ]
        assert rows["maintenance.purge"][3].startswith("in ")
        assert "Check the credit ledger: the last run failed" in operator_console.see(
            OPERATORS_PATH
        )
        last_finish = "SELECT last_finished_at FROM maintenance WHERE name = %s"
        finish_before = stack.query(last_finish, name)
        form_index = sorted(MAINTENANCE_SECONDS).index(name)
        assert (
            "The task “Delete abandoned uploads” will run within seconds."
            in operator_console.do(path, form_index)
        )
        eventually(lambda: stack.query(last_finish, name) != finish_before, what=f"a run of {name}")
        assert list_actions(operator_console)[0] == {
            "act": "maintenance.begun",
            "maintenance": name,
        }
        unknown_task = {"name": "maintenance.tidy"}
        assert operator_console.send(path, **unknown_task).status_code == 404
        set_lease = f"UPDATE maintenance SET lease_expires_at = {{}} WHERE name = '{name}'"
        stack.query(set_lease.format("now() + interval '1 minute'"))
        text = read_page(operator_console.send(path, form_index), 409)
        assert "running" in {row[3] for row in rows_of(text) if row[0].endswith(name)}
        stack.query(set_lease.format("NULL"))


def test_operator_overview_shows_a_card_only_for_work_that_needs_attention(
    operator_console: OwnerAtConsole, stack: Stack
) -> None:
    with resting_maintenance(stack):
        stack.query("UPDATE maintenance SET last_error = NULL, due_at = now() + interval '1 hour'")
        text = operator_console.see(OPERATORS_PATH)
        assert '<h2 id="maintenance">' not in text
        assert "is overdue, and the last run of each task succeeded." in text
        stack.query("UPDATE maintenance SET last_error = 'OSError' WHERE name = 'credits.verify'")
        text = operator_console.see(OPERATORS_PATH)
        assert '<h2 id="maintenance">' in text
        assert "is overdue, and the last run of each task succeeded." not in text
        stack.query("UPDATE maintenance SET last_error = NULL WHERE name = 'credits.verify'")


def test_operator_overview_counts_overdue_deletions(
    operator_console: OwnerAtConsole, stack: Stack
) -> None:
    set_expiry = "UPDATE user_sessions SET expires_at = now() {} WHERE user_id = %s"

    def count_overdue_sessions() -> int:
        rows = {
            row[0]: row[1] for row in rows_of(operator_console.see(OPERATORS_PATH)) if len(row) > 1
        }
        return int(rows.get("user_sessions", 0))

    with resting_maintenance(stack), at_console(stack) as other_owner:
        count_before = count_overdue_sessions()
        stack.query(set_expiry.format("- interval '1 day'"), other_owner.owner.user_id)
        assert count_overdue_sessions() == count_before + 1
        stack.query(set_expiry.format("+ interval '1 day'"), other_owner.owner.user_id)
        assert count_overdue_sessions() == count_before
