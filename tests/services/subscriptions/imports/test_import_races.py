"""Imports that run at the same time as other imports, opt-outs or erasures of the same people."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from sqlalchemy.exc import NoResultFound

from core.errors import DomainError
from core.errors.mailing import LIST_BUSY
from devstack.harness.stack import Owner
from models import Job, OptOutKind
from services.accounts import accounts
from services.jobs import records as job_records
from services.subscriptions import lists, sign_up
from services.subscriptions.imports.chunks import applying, chunks
from services.subscriptions.members import unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses
from tests.support.people.changed_addresses import change_address
from tests.support.people.erasure import erase
from tests.support.sizes import sized

ROW_COUNT = sized(1500, 50_000, few=300)
ROUND_COUNT = sized(2, 20, few=1)
# During an import, each action, such as an erasure, is applied to this number of people.
PEOPLE_PER_ACTION = sized(60, 60, few=10)
OWNER = Actor(ActorKind.OWNER, Via.LOGIN)
Action = Callable[[ImportRunner, int, str], None]
READER = Actor(ActorKind.USER, Via.TRACE)
pytestmark = pytest.mark.usefixtures("_require_no_deadlock_in_imports")


@pytest.fixture(autouse=True)
def _set_100_rows_per_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 100)


def shuffled_csv(addresses: list[str], seed: int) -> bytes:
    copy = list(addresses)
    random.Random(seed).shuffle(copy)
    return csv_of([[each, ""] for each in copy])


def run_concurrently(*actions: Callable[[], object]) -> list[object]:
    with ThreadPoolExecutor(len(actions)) as threads:
        return [each.result(100) for each in [threads.submit(action) for action in actions]]


@pytest.mark.tier("fast", "properties")
@pytest.mark.parametrize("list_count", [1, 2], ids=["one list", "two lists"])
def test_concurrent_imports_of_the_same_people_count_each_person_exactly_once(
    importing: ImportRunner, importer: Owner, list_count: int
) -> None:
    for number in range(ROUND_COUNT):
        people = new_addresses(ROW_COUNT)
        third = ROW_COUNT // 3
        parts = [people[: 2 * third], people[third:]]
        ids = [importing.new_list(importer) for _ in range(list_count)]
        target_list_ids = [ids[0], ids[-1]]
        jobs = [
            importing.begin(importer, list_id, shuffled_csv(part, number))
            for list_id, part in zip(target_list_ids, parts, strict=True)
        ]
        run_concurrently(*[partial(importing.work, job_id) for job_id in jobs])
        tasks = [importing.of_job(job_id) for job_id in jobs]
        assert [task.status for task in tasks] == ["succeeded", "succeeded"]
        person_counts = importing.stack.query(
            "SELECT count(*), count(DISTINCT email) FROM users WHERE email = ANY(%s)", people
        )
        assert person_counts == [(ROW_COUNT, ROW_COUNT)]
        added = sum(task.added for task in tasks)
        already = sum(task.already for task in tasks)
        overlap = sum(map(len, parts)) - ROW_COUNT
        assert (added, already) == (
            (ROW_COUNT, overlap) if list_count == 1 else (ROW_COUNT + overlap, 0)
        )
        if list_count == 1:
            assert importing.active(ids[0]) == set(people)
        for list_id in ids:
            assert importing.count(list_id) == len(importing.active(list_id))


@pytest.mark.tier("fast", "properties")
def test_person_who_opts_out_or_is_erased_during_an_import_is_not_subscribed(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    people = new_addresses(ROW_COUNT)
    actions: tuple[Action, ...] = (_unsubscribe, _turn_off_mail, _erase, _remove_and_add)
    people_by_action = {
        action: people[number : PEOPLE_PER_ACTION * 4 : 4] for number, action in enumerate(actions)
    }
    with importing.resources.unit_of_work() as uow:
        for each in people[: PEOPLE_PER_ACTION * 4]:
            accounts.find_or_create_person(uow, each)
    import_started = threading.Event()
    job_id = importing.begin(importer, list_id, shuffled_csv(people, 1))

    def work() -> object:
        import_started.set()
        return importing.work(job_id)

    def repeat(action: Action, addresses: list[str]) -> None:
        import_started.wait(10)
        for each in addresses:
            _retry_while_busy(partial(action, importing, list_id, each))

    run_concurrently(
        work,
        *[partial(repeat, action, addresses) for action, addresses in people_by_action.items()],
    )
    task = importing.of_job(job_id)
    assert task.status == "succeeded"
    importing.apply_opt_out()
    active = importing.active(list_id)
    assert active.isdisjoint(people_by_action[_unsubscribe])
    mailable_count = importing.stack.query(
        "SELECT count(*) FROM subscriptions s JOIN users u ON u.id = s.user_id"
        " WHERE list_id = %s AND email_enabled AND u.email = ANY(%s)",
        *(list_id, people_by_action[_turn_off_mail]),
    )
    assert mailable_count == [(0,)]
    _require_no_erased(importing, list_id, people_by_action[_erase])
    assert set(people[PEOPLE_PER_ACTION * 4 :]) <= active
    rows_without_address = importing.stack.query(
        "SELECT id FROM subscriptions WHERE list_id = %s AND status = 'active' AND email IS NULL",
        list_id,
    )
    assert importing.count(list_id) == len(active) + len(rows_without_address)


def _retry_while_busy(action: Callable[[], None]) -> None:
    """Repeat the action while it fails with ``list.busy``, which tells callers to try again."""
    for _ in range(60):
        try:
            return action()
        except DomainError as error:
            if error.code != LIST_BUSY.code:
                raise
    raise AssertionError("the list is always busy")


def _record_opt_out(kind: OptOutKind, importing: ImportRunner, list_id: int, address: str) -> None:
    # End this transaction first, because ``opt_out`` opens its own transactions.
    with importing.person(list_id, address) as (_, mailing_list, person):
        pass
    unsubscribe.opt_out(importing.resources, mailing_list, person, kind, READER)


_unsubscribe = partial(_record_opt_out, OptOutKind.LIST)
_turn_off_mail = partial(_record_opt_out, OptOutKind.EMAIL)


def _erase(importing: ImportRunner, _: int, address: str) -> None:
    erase(importing.resources, address)


def _remove_and_add(importing: ImportRunner, list_id: int, address: str) -> None:
    with importing.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        sign_up.request_subscription(uow, mailing_list, address, OWNER)
    importing.remove(list_id, address)


def _require_no_erased(importing: ImportRunner, list_id: int, addresses: list[str]) -> None:
    """Require that the list's records of erased people contain neither an address nor a name.

    A person who joins again with an erased address has a new user record.
    """
    erased_rows = importing.stack.query(
        "SELECT s.status, s.email, s.name FROM subscriptions s JOIN users u ON u.id = s.user_id"
        " WHERE list_id = %s AND u.erased_at IS NOT NULL",
        list_id,
    )
    assert set(erased_rows) <= {("removed", None, None)}
    rows = importing.stack.query(
        "SELECT s.email FROM subscriptions s JOIN users u ON u.id = s.user_id"
        " WHERE list_id = %s AND s.email = ANY(%s) AND u.email <> s.email",
        *(list_id, addresses),
    )
    assert rows == []


def test_rows_for_one_member_in_different_chunks_count_as_duplicates(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    first_old_address, first_new_address, second_old_address, second_new_address = new_addresses(4)
    importing.import_members(
        importer, list_id, csv_of([[first_old_address, "Ada"], [second_old_address, "Cy"]])
    )
    for old_address, new_address in (
        (first_old_address, first_new_address),
        (second_old_address, second_new_address),
    ):
        change_address(importing.resources, old_address, new_address)
    rows = [
        [first_old_address, "One", ""],
        ["x@example.com", "", ""],
        [first_new_address, "Two", ""],
        [second_old_address, "", ""],
    ]
    # The last row of the file opts out the second member, but contains the member's new address.
    # An import writes chunks that contain opt-outs to the database before all other chunks.
    rows += [[second_new_address, "", "unsubscribed"]]
    job_id = importing.begin(
        importer, list_id, csv_of(rows, ("email", "name", "status")), on_existing="update"
    )
    job = importing.work(job_id)
    assert (job.status, job.error) == ("succeeded", None)
    task = importing.of_job(job_id)
    assert (task.chunks, task.received, task.added, task.already) == (3, 5, 1, 1)
    assert (task.updated, task.duplicate, task.opted_out) == (1, 2, 1)
    assert importing.active(list_id) == {first_old_address, "x@example.com"}
    # The undo restores the member's name.
    assert importing.undo(importer, task.id)["undone"] == 1
    name_query = "SELECT name FROM subscriptions WHERE list_id = %s AND email = %s"
    assert importing.stack.query(name_query, list_id, first_old_address) == [("Ada",)]


def test_member_whose_address_changes_during_an_import_is_not_added_twice(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_address, new_address = new_addresses(2)
    importing.import_members(importer, list_id, csv_of([[old_address, "Ada"]]))
    write_rows = applying._write_rows

    def write_after_address_change(*chunk: Any) -> None:
        with suppress(NoResultFound):
            change_address(importing.resources, old_address, new_address)
        write_rows(*chunk)

    monkeypatch.setattr(applying, "_write_rows", write_after_address_change)
    job_id = importing.begin(importer, list_id, csv_of([[new_address, ""]]))
    assert importing.work(job_id).status == "succeeded"
    assert (importing.of_job(job_id).already, importing.job(job_id).attempt) == (1, 2)
    assert importing.active(list_id) == {old_address}


@pytest.mark.parametrize("rows", [4, 2])
def test_rows_rejected_by_the_database_fail_the_import_after_all_others_are_applied(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    people = new_addresses(rows)
    table = "ALTER TABLE subscriptions"
    importing.stack.query(
        f"{table} ADD CONSTRAINT refused CHECK (email <> '{people[0]}') NOT VALID"
    )
    try:
        job_id = importing.begin(importer, list_id, csv_of([[each, ""] for each in people]))
        job = importing.work(job_id)
    finally:
        importing.stack.query(f"{table} DROP CONSTRAINT refused")
    assert (job.status, job.attempt) == ("failed", 2 if rows > 2 else 1)
    assert job.error is not None
    assert (job.error["kind"], job.error["code"]) == ("damaged", "job.rows_failed")
    assert "Lines 2 to 3" in job.error["message"]
    assert importing.active(list_id) == set(people[2:])
    # The test has dropped the constraint that rejected the rows, so a retry of the job imports the
    # rejected rows.
    with importing.resources.unit_of_work() as uow:
        job_records.retry_locked_job(uow, uow.session.get_one(Job, job_id, with_for_update=True))
    assert importing.work(job_id).status == "succeeded"
    assert importing.active(list_id) == set(people)
    assert importing.of_job(job_id).added == rows


def test_import_adds_nobody_to_a_list_archived_before_the_import_runs(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    job_id = importing.begin(importer, list_id, csv_of([["a@example.com", ""]]))
    with importing.resources.unit_of_work() as uow:
        lists.archive_list(uow, lists.get_list(uow, list_id))
    job = importing.work(job_id)
    assert (job.status, (job.error or {}).get("code")) == ("failed", "list.not_found")
    assert importing.of_job(job_id).status == "failed"
    assert importing.active(list_id) == set()
