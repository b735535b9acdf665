from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from core.ids import random_hash_id
from models import Job
from services.subscriptions.imports import undo
from services.subscriptions.members import changes
from tests.erasing import erase
from tests.importing import Importing, csv_of, new_addresses
from tests.services.subscriptions.imports.test_import_races import all_of
from tests.services.subscriptions.members.racing import deadlocks
from tests.sizes import sized
from tests.stack import Owner, eventually

ROUNDS = sized(4, 40, few=1)
PEOPLE = 60
HEADER = ("email", "name", "tier")


def rows(people: list[str], name: str) -> bytes:
    return csv_of([[each, name, ""] for each in people], HEADER)


@pytest.mark.both("properties")
def test_neither_waits_for_the_other_in_a_circle_and_nothing_comes_back(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "BATCH", 2)
    before = deadlocks(quiet.stack)
    for _ in range(ROUNDS):
        people = new_addresses(PEOPLE)
        list_id = quiet.new_list(keeper)
        quiet.bring(keeper, list_id, rows(people[: PEOPLE // 2], "Before"))
        task = quiet.bring(keeper, list_id, rows(people, "After"), on_existing="update")
        job_id = quiet.begin_undo(keeper, task.id)

        def erase_all(addresses: list[str]) -> None:
            for each in addresses:
                erase(quiet.resources, each)

        # From the other end, so that each meets rows that the other has locked.
        erased = people[: PEOPLE // 2][::-1]
        all_of(partial(quiet.work, job_id), *(partial(erase_all, erased[n::3]) for n in range(3)))
        assert quiet.job(job_id).status == "succeeded"
        left = quiet.stack.query(
            "SELECT DISTINCT s.status, s.email, s.name FROM subscriptions s"
            " JOIN users u ON u.id = s.user_id WHERE list_id = %s",
            list_id,
        )
        assert left == [("removed", None, None)]
        assert quiet.stack.query("SELECT 1 FROM import_changes WHERE import_id = %s", task.id) == []
        assert quiet.count(list_id) == 0
    assert deadlocks(quiet.stack) == before


def test_an_undo_waits_for_the_erasure_of_one_of_its_people(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [f"{number}.{random_hash_id()}@example.com" for number in range(3)]
    list_id = quiet.new_list(keeper)
    quiet.bring(keeper, list_id, rows(people, "Before"))
    task = quiet.bring(keeper, list_id, rows(people, "After"), on_existing="update")
    job_id = quiet.begin_undo(keeper, task.id)
    before, change = deadlocks(quiet.stack), changes.change
    waits = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )
    with ThreadPoolExecutor(1) as thread:
        undoing = list[Future[Job]]()

        def change_while_undone(*args: Any, **values: Any) -> bool:
            changed = change(*args, **values)
            args[0].session.flush()
            # The record is locked now, and the undo comes for it.
            undoing.append(thread.submit(quiet.work, job_id))
            eventually(lambda: quiet.stack.query(waits), what="the undo's wait")
            return changed

        monkeypatch.setattr(changes, "change", change_while_undone)
        erase(quiet.resources, people[0])
        assert undoing[0].result(60).status == "succeeded"
    assert deadlocks(quiet.stack) == before
    names = "SELECT name FROM subscriptions WHERE list_id = %s ORDER BY name"
    assert quiet.stack.query(names, list_id) == [("Before",), ("Before",), (None,)]
