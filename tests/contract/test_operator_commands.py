"""Tests of the operator's commands for users, lists, credits, jobs, events and maintenance."""

import json
from datetime import datetime
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.commands.running import (
    pressroom,
    require_command_error,
    run_command_process,
    run_json_command,
)
from tests.support.http.replies import TIMESTAMP, data, send
from tests.support.people.visiting import OTHER_PASSWORD, PASSWORD, new_visitor
from tests.support.stack.maintenance import run_maintenance
from tests.support.stack.maintenance_kinds import MAINTENANCE_SECONDS


def test_cli_sets_a_password_from_stdin_and_logs_the_user_out(stack: Stack) -> None:
    email = "by.stdin@example.com"
    create_user = ("users", "create", email, "--name", "Ada", "--plan", "paid", "--password-stdin")
    run_json_command(stack, *create_user, stdin=f"{PASSWORD}\n")
    user = run_json_command(stack, "users", "show", email)
    assert (user["plan"], user["has_password"], user["lists"]) == ("paid", True, [])
    assert run_json_command(stack, "users", "show", str(user["id"])) == user
    part_of_email = email.partition("@")[0].upper()
    [listed_user] = run_json_command(stack, "users", "list", "--email", part_of_email)
    assert listed_user["id"] == user["id"]
    assert run_json_command(stack, "users", "list", "--email", part_of_email, "--owners") == []
    run_json_command(stack, "lists", "create", email, "--title", "News", "--slug", "by-stdin")
    [owner] = run_json_command(stack, "users", "list", "--email", part_of_email, "--owners")
    assert owner["id"] == user["id"]
    with new_visitor(stack) as visitor:
        assert visitor.log_in(email, PASSWORD).status_code == 303
        change_password = ("users", "password", email, "--password-stdin")
        run_json_command(stack, *change_password, stdin=OTHER_PASSWORD)
        assert not visitor.is_logged_in()
        visitor.mailed(email, "Your password was changed")
    with new_visitor(stack) as visitor:
        assert visitor.log_in(email, PASSWORD).status_code != 303
        assert visitor.log_in(email, OTHER_PASSWORD).status_code == 303
    [password_event] = [
        each
        for each in run_json_command(stack, "events", "account", email)
        if each["type"] == "password.changed"
    ]
    assert password_event["credential_kind"] == "command"


@pytest.mark.parametrize(
    "command", [("create", "no.tty@example.com", "--name", "N"), ("password", "x@example.com")]
)
def test_cli_without_terminal_explains_how_to_pass_a_password(
    stack: Stack, command: tuple[str, ...]
) -> None:
    process = pressroom(stack, "users", *command)
    assert process.returncode == 2
    assert "--password-stdin" in process.stderr


def test_cli_rejects_a_too_short_password_and_an_unknown_user(stack: Stack, owner: Owner) -> None:
    change_password = ("users", "password", owner.email, "--password-stdin")
    process = pressroom(stack, *change_password, stdin="short")
    assert (process.returncode, process.stdout) == (1, "")
    assert "password.length" in process.stderr
    require_command_error(stack, "user.not_found", "users", "show", "nobody@example.com")


def test_cli_lists_and_shows_and_archives_mailing_lists(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    slugs = [f"listed-{owner.user_id}-{number}" for number in range(2)]
    for slug in slugs:
        data(client.post("/lists", json={"title": "A letter", "slug": slug}))
    lists_before = run_json_command(stack, "lists", "list", "--owner", owner.email)
    assert [each["slug"] for each in lists_before] == slugs[::-1]
    assert {each["active"] for each in lists_before} == {0}
    list_details = run_json_command(stack, "lists", "show", slugs[0])
    assert (list_details["owner"], list_details["archived_at"]) == (owner.email, None)
    archive_result = {"id": list_details["id"], "slug": slugs[0], "archived": 1}
    assert run_json_command(stack, "lists", "archive", slugs[0]) == archive_result
    assert run_json_command(stack, "lists", "archive", slugs[0])["archived"] == 0
    assert run_json_command(stack, "lists", "show", slugs[0])["archived_at"]
    active_lists = run_json_command(stack, "lists", "list", "--owner", owner.email)
    assert [each["slug"] for each in active_lists] == slugs[1:]
    archived_lists = run_json_command(stack, "lists", "list", "--owner", owner.email, "--archived")
    assert [each["slug"] for each in archived_lists] == slugs[:1]


def test_cli_shows_the_same_balance_and_ledger_as_the_api(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    run_json_command(stack, "credits", "grant", owner.email, "12.5")
    run_json_command(stack, "credits", "adjust", owner.email, "-0.5")
    balance = run_json_command(stack, "credits", "balance", owner.email)
    assert balance == data(client.get("/auxilia/credits/balance"))
    assert balance["balance_credit"] == 12
    entries = run_json_command(stack, "credits", "ledger", owner.email)
    assert entries == data(client.get("/auxilia/credits/ledger"))["items"]
    assert [each["delta_credit"] for each in entries] == [-0.5, 12.5]


def test_cli_cancels_a_queued_job_and_marks_its_attachment_failed(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    data(send(client_without_workers, prefer="respond-async"), 202)
    [job] = data(client_without_workers.get("/jobs"))["items"]
    cancel_job = ("jobs", "cancel", str(job["id"]))
    assert run_json_command(stack_without_workers, *cancel_job) == {"id": job["id"], "cancelled": 1}
    [record] = data(client_without_workers.get("/attachments"))["items"]
    assert (record["status"], record["error"]["code"]) == (3, "job.cancelled")
    assert run_json_command(stack_without_workers, *cancel_job) == {"id": job["id"], "cancelled": 0}
    process = pressroom(stack_without_workers, "jobs", "watch", str(job["id"]))
    assert process.returncode == 1
    assert "job.cancelled" in process.stdout
    require_command_error(stack_without_workers, "job.not_found", "jobs", "cancel", "999999999")


def test_cli_watches_a_job_until_its_end(stack: Stack, client: httpx2.Client) -> None:
    data(send(client, prefer="respond-async"), 200, 202)
    [job] = data(client.get("/jobs"))["items"]
    finished_job = run_json_command(stack, "jobs", "watch", str(job["id"]))
    assert (finished_job["status"], finished_job["error"]) == ("succeeded", None)
    assert finished_job["result"]["hash_id"]


def test_cli_shows_the_event_feed_newest_first(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    for _ in range(3):
        data(send(client))
    feed_events = data(client.get("/events", params={"type": "attachment.ready"}))["items"]
    feed_command = ("events", "feed", owner.email, "--type", "attachment.ready")
    printed_events: Any = run_json_command(stack, *feed_command, "--limit", "2")
    assert printed_events == feed_events[::-1][:2]
    assert len(feed_events) == 3
    table = pressroom(stack, *feed_command)
    assert str(feed_events[0]["id"]) in table.stdout


def test_cli_lists_every_maintenance_task_of_the_workers_with_its_last_run(stack: Stack) -> None:
    run_maintenance(stack, "maintenance.purge")
    # Use a separate process, because the test process has already registered the workers' tasks.
    process = run_command_process(stack.environment, "maintenance", "--json")
    assert process.returncode == 0, process.stderr
    tasks = {each["name"]: each for each in json.loads(process.stdout)}
    assert {name: each["every_seconds"] for name, each in tasks.items()} == MAINTENANCE_SECONDS
    purge = tasks["maintenance.purge"]
    assert TIMESTAMP.fullmatch(purge["last_started_at"])
    assert purge["last_seconds"] >= 0
    assert purge["last_result"]["done"] >= 0
    assert (purge["last_error"], purge["is_running"]) == (None, False)
    assert datetime.fromisoformat(purge["due_at"]) > datetime.fromisoformat(
        purge["last_finished_at"]
    )


def test_cli_maintenance_table_fits_into_80_columns(stack: Stack) -> None:
    run_maintenance(stack, "maintenance.purge")
    # Remove all error messages, because a table that isn't printed to a terminal is as wide as its
    # longest error message. Set the times of all maintenance runs to less than two hours before or
    # after now, so that the table shows no time span with more than three digits.
    stack.query(
        "UPDATE maintenance SET last_error = NULL, due_at = now() + interval '119 min 30 s',"
        " last_started_at = now() - interval '119 min',"
        " last_finished_at = now() - interval '118 min'"
    )
    process = pressroom(stack, "maintenance", COLUMNS="80")
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for name in MAINTENANCE_SECONDS:
        [line] = [line for line in lines if name in line]
        assert " ago " in line


def test_cli_runs_a_maintenance_task_before_its_due_time(stack: Stack) -> None:
    run_maintenance(stack, "maintenance.sweep_uploads")
    task_before = {each["name"]: each for each in run_json_command(stack, "maintenance")}[
        "maintenance.sweep_uploads"
    ]
    task_after = run_json_command(stack, "maintenance", "maintenance.sweep_uploads")
    assert task_after["last_started_at"] > task_before["last_finished_at"]
    assert task_after["last_result"] == {"done": 0}
    assert task_after["due_at"] > task_before["due_at"]


def test_cli_rejects_a_running_or_unknown_maintenance_task(stack: Stack) -> None:
    require_command_error(stack, "maintenance.not_found", "maintenance", "maintenance.tidy")
    run_maintenance(stack, "maintenance.sweep_files")
    set_lease = (
        "UPDATE maintenance SET lease_expires_at = {} WHERE name = 'maintenance.sweep_files'"
    )
    stack.query(set_lease.format("now() + interval '1 minute'"))
    try:
        require_command_error(
            stack, "maintenance.running", "maintenance", "maintenance.sweep_files"
        )
    finally:
        stack.query(set_lease.format("NULL"))
