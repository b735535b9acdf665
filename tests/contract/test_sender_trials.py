"""Tests that the trial of a request body writes nothing, and is limited in size and time."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import Report, body_of, bounce, deliver, delivery_for, report
from tests.support.stack.held_rows import uncommitted

MAX_REPORTS = 100
MAX_BYTES = 256 * 1024
# The API itself writes to these tables for each call.
CALL_TABLES = ("api_requests", "api_keys", "users")
WAITING_TRIALS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%%JOIN address_opt_outs%%'
"""
SIZES = """
    SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> ALL (%s)
"""


def try_reports(client: httpx2.Client, sender: dict[str, Any], *reports: Report) -> httpx2.Response:
    return client.post(f"/senders/{sender['id']}/try", json={"body": body_of(*reports).decode()})


def test_trial_of_the_maximum_size_changes_the_size_of_no_table(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    client = client_without_workers
    list_ids = [int(new_list(client)["id"]) for _ in range(20)]
    sender = new_sender(client, list_ids=list_ids)
    strangers = [report("complained", email=new_address()) for _ in range(MAX_REPORTS)]
    before = stack_without_workers.query(SIZES, list(CALL_TABLES))
    for _ in range(3):
        effects = data(try_reports(client, sender, *strangers))
        assert {each["outcome"] for each in effects} == {"applied"}
    assert stack_without_workers.query(SIZES, list(CALL_TABLES)) == before


def test_trial_shows_the_outcomes_of_a_real_request(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    sender = new_sender(client, list_ids=[list_id])
    emails = [new_address() for _ in range(3)]
    data(add(client, list_id, *emails))
    first_id, second_id, third_id = (
        delivery_for(stack, list_id, require_member(client, list_id, email)["user_id"])
        for email in emails
    )
    stranger = new_address()
    reports = [
        report("delivered", delivery_id=first_id),
        report("delivered", delivery_id=first_id),
        bounce(delivery_id=second_id),
        bounce("soft", "4.2.2", delivery_id=third_id),
        bounce("blocked", "5.7.1", delivery_id=third_id),
        report("opened", delivery_id=third_id),
        report("unsubscribed", email=stranger),
        report("complained", email=stranger),
        report("delivered", email=stranger),
    ]
    expected_outcomes = (
        *("applied", "duplicate", "applied", "applied", "applied"),
        *("off", "applied", "duplicate", "unmatched"),
    )
    repeated_outcomes = [each.replace("applied", "duplicate") for each in expected_outcomes]
    for each_outcomes in ([*expected_outcomes], repeated_outcomes):
        effects = data(try_reports(client, sender, *reports))
        assert [each["outcome"] for each in effects] == each_outcomes
        deliver(stack, client, sender, *reports)
        page = data(client.get(f"/senders/{sender['id']}/reports", params={"limit": len(reports)}))
        assert [each["outcome"] for each in reversed(page["items"])] == each_outcomes


@pytest.mark.parametrize(
    ("scopes", "can_read"),
    [
        ([Scope.SENDER], False),
        ([Scope.SENDER, Scope.DELIVERY, Scope.WEBHOOK], False),
        ([Scope.SENDER, Scope.SUBSCRIPTION_READ], True),
        ([Scope.SENDER, Scope.SUBSCRIPTION_FULL], True),
        ([], True),
    ],
)
def test_trial_tells_who_is_a_member_only_to_keys_that_can_read_members(
    stack: Stack,
    owner: Owner,
    client: httpx2.Client,
    list_id: int,
    *,
    scopes: list[Scope],
    can_read: bool,
) -> None:
    sender = new_sender(client, list_ids=[list_id])
    email = new_address()
    data(add(client, list_id, email))
    user_id = require_member(client, list_id, email)["user_id"]
    with stack.client(stack.create_key(owner.user_id, *scopes)) as program:
        reply = try_reports(
            program,
            sender,
            bounce(email=email),
            bounce(email=new_address()),
            bounce(delivery_id=delivery_for(stack, list_id, user_id)),
            report("complained", email=new_address()),
        )
    effects = data(reply)
    facts = [(each["kind"], each["code"], each["status"]) for each in effects]
    assert facts == [("bounced", "hard", "5.1.1")] * 3 + [("complained", None, None)]
    hidden_names = ("outcome", "mailing_id", "list_id", "user_id", "recipient")
    hidden_values = [tuple(each[name] for name in hidden_names) for each in effects]
    if can_read:
        assert [each[0] for each in hidden_values] == ["applied", "unmatched", "applied", "applied"]
        assert [each[3] for each in hidden_values] == [user_id, None, user_id, None]
    else:
        assert set(hidden_values) == {(None,) * len(hidden_names)}


@pytest.mark.parametrize("provider", ["generic", "brevo"])
def test_trial_refuses_too_many_reports_and_bytes(client: httpx2.Client, provider: str) -> None:
    sender = new_sender(client, provider=provider)
    path = f"/senders/{sender['id']}/try"

    def build_body(count: int, padding: int = 0, provider: str = provider) -> str:
        if provider == "generic":
            reports = [report("delivered", email="a@b.example")] * count
            return body_of(*reports).decode() + " " * padding
        return json.dumps([{"event": "delivered", "email": "a@b.example"}] * count)

    assert len(data(client.post(path, json={"body": build_body(MAX_REPORTS)}))) == MAX_REPORTS
    error = problem(
        client.post(path, json={"body": build_body(MAX_REPORTS + 1)}), 422, "report.too_many"
    )
    assert "100" in error["detail"]
    problem(client.post(path, json={"body": "é" * (MAX_BYTES // 2 + 1)}), 413, "body.too_large")


def test_trial_ends_after_two_seconds_while_the_database_hangs(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    sender = new_sender(client, list_ids=[list_id])
    complaint = report("complained", email=new_address())
    with uncommitted(stack, "LOCK TABLE address_opt_outs"):
        error = problem(try_reports(client, sender, complaint), 504, "request.too_slow")
    assert "2 seconds" in error["detail"]
    assert data(try_reports(client, sender, complaint))[0]["outcome"] == "applied"


def test_slow_trials_of_one_account_leave_threads_for_other_accounts(
    stack: Stack, client: httpx2.Client, other_owner: httpx2.Client, list_id: int
) -> None:
    sender = new_sender(client, list_ids=[list_id])
    complaint = report("complained", email=new_address())
    waiting_trials: list[int] = []
    with ThreadPoolExecutor(8) as threads, uncommitted(stack, "LOCK TABLE address_opt_outs"):
        trials = [threads.submit(try_reports, client, sender, complaint) for _ in range(8)]
        while not all(trial.done() for trial in trials):
            [(count,)] = stack.query(WAITING_TRIALS)
            waiting_trials.append(int(str(count)))
            assert other_owner.get("/lists").status_code == 200
        replies = [trial.result() for trial in trials]
    assert {reply.status_code for reply in replies} <= {503, 504}
    # Two of the API's eight threads for records.
    assert max(waiting_trials) == 2
