from datetime import datetime

from tests.commands import pressroom, printed, refused
from tests.contract.test_replies import TIMESTAMP
from tests.stack import Stack
from tests.upkeep import run_upkeep

KINDS = {
    "objects.remove": 5,
    "topups.poll": 30,
    "backup.journal": 60,
    "backup.create": 3600,
    "maintenance.fold_counts": 30,
    "maintenance.partitions": 3600,
    "maintenance.purge": 3600,
    "credits.verify": 86_400,
    "maintenance.strangers": 3600,
    "maintenance.shorten_ips": 3600,
    "maintenance.sweep_files": 3600,
    "maintenance.sweep_uploads": 3600,
}


def test_upkeep_is_listed_with_its_last_run(stack: Stack) -> None:
    run_upkeep(stack, "maintenance.purge")
    listed = {each["name"]: each for each in printed(stack, "upkeep")}
    assert {name: each["every_seconds"] for name, each in listed.items()} == KINDS
    purge = listed["maintenance.purge"]
    assert set(purge) == {
        "name",
        "every_seconds",
        "last_started_at",
        "last_finished_at",
        "last_seconds",
        "last_result",
        "last_error",
        "is_running",
        "due_at",
    }
    assert TIMESTAMP.fullmatch(purge["last_started_at"])
    assert purge["last_seconds"] >= 0
    assert purge["last_result"]["done"] >= 0
    assert (purge["last_error"], purge["is_running"]) == (None, False)
    assert datetime.fromisoformat(purge["due_at"]) > datetime.fromisoformat(
        purge["last_finished_at"]
    )


def test_upkeep_is_shown_in_a_table_of_80_columns(stack: Stack) -> None:
    run_upkeep(stack, "maintenance.purge")
    # Through a pipe, the table is as wide as the error of a run that failed.
    stack.query("UPDATE upkeep SET last_error = NULL")
    done = pressroom(stack, "upkeep", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for name in KINDS:
        [line] = [line for line in lines if name in line]
        assert " ago " in line


def test_upkeep_runs_now_although_it_is_not_due(stack: Stack) -> None:
    run_upkeep(stack, "maintenance.sweep_uploads")
    before = {each["name"]: each for each in printed(stack, "upkeep")}["maintenance.sweep_uploads"]
    ran = printed(stack, "upkeep", "maintenance.sweep_uploads")
    assert ran["last_started_at"] > before["last_finished_at"]
    assert ran["last_result"] == {"done": 0}
    assert ran["due_at"] > before["due_at"]


def test_upkeep_that_runs_or_is_unknown_is_refused(stack: Stack) -> None:
    refused(stack, "upkeep.not_found", "upkeep", "maintenance.tidy")
    run_upkeep(stack, "maintenance.sweep_files")
    lease = "UPDATE upkeep SET lease_expires_at = {} WHERE name = 'maintenance.sweep_files'"
    stack.query(lease.format("now() + interval '1 minute'"))
    try:
        refused(stack, "upkeep.running", "upkeep", "maintenance.sweep_files")
    finally:
        stack.query(lease.format("NULL"))
