"""Tests of the job that erases a person: batches, worker crashes and concurrent writes."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from core.errors import DomainError, TransientError
from core.ids import AccountId, PersonId, random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner
from models import Job, JobStatus, OptOutKind, User
from models.declarative import Model
from services.access.caller import Caller
from services.accounts import accounts
from services.attachments import records
from services.jobs.lease import Lease, LeaseLost
from services.jobs.transitions import hand_back_job, record_progress
from services.privacy import erasure, stages
from services.subscriptions import exports, lists, sign_up
from services.subscriptions.export_sheets import ExportKind
from services.subscriptions.imports.chunks import rejected_rows
from services.subscriptions.member_attributes import AttributeChanges
from services.subscriptions.members import changes, locks, mails, members, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.members import MemberEdit
from storage.unit_of_work import UnitOfWork
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses
from tests.support.lists.racing import deadlocks
from tests.support.mail.forbidden import ForbiddenMailer
from tests.support.people.erasure import claim, erase, finish, take_turn
from tests.support.people.traces import (
    NOT_FILLED,
    build_conditions,
    count_unerased_rows,
    insert_rows,
)

READER = Actor(ActorKind.USER, Via.LOGIN)
OWNER = Actor(ActorKind.OWNER, Via.LOGIN)
ROWS_PER_TABLE = 47
# The maximum number of rows that a batch has in these tests.
MAX_BATCH_ROWS = 10


@pytest.fixture
def erased_address() -> str:
    return f"{random_hash_id()}@example.com"


@pytest.fixture
def erased_user_id(imports_without_workers: ImportRunner, erased_address: str) -> int:
    with imports_without_workers.resources.unit_of_work() as uow:
        return accounts.create_user(
            uow, email=erased_address, name="Ada", password="secret-word-12"
        ).id


@pytest.fixture
def owned_list_id(imports_without_workers: ImportRunner, list_owner: Owner) -> int:
    return imports_without_workers.new_list(list_owner)


@pytest.fixture
def fill_tables(
    imports_without_workers: ImportRunner, list_owner: Owner, erased_user_id: int
) -> Callable[[int, int], None]:
    """Return a function that adds rows about the erased person to every table.

    The arguments of the function are the list's id and the number of rows per table.
    """

    def fill_for_list(list_id: int, rows: int) -> None:
        insert_rows(
            imports_without_workers.stack,
            list_id=list_id,
            user_id=erased_user_id,
            other_id=list_owner.user_id,
            rows=rows,
        )

    return fill_for_list


def join_list(imports_without_workers: ImportRunner, list_id: int, user_id: int) -> None:
    with imports_without_workers.resources.unit_of_work() as uow:
        person = uow.session.get_one(User, user_id)
        mailing_list = lists.get_list(uow, list_id)
        sign_up.subscribe_person(uow, mailing_list, person, READER)


def set_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_ROWS", MAX_BATCH_ROWS)
    monkeypatch.setattr(stages, "MAX_EVENTS", MAX_BATCH_ROWS)
    monkeypatch.setattr(stages, "MAX_LISTS", 2)


def test_erasure_tests_fill_every_table_that_names_a_person_or_refers_to_their_things(
    imports_without_workers: ImportRunner,
    owned_list_id: int,
    erased_user_id: int,
    fill_tables: Callable[[int, int], None],
) -> None:
    fill_tables(owned_list_id, 1)
    # If this test fails for a new table, add the table to `insert_rows` or to `NOT_FILLED`.
    filled = count_unerased_rows(imports_without_workers.stack, erased_user_id).keys()
    assert filled | NOT_FILLED == build_conditions().keys()


def test_erasure_transactions_are_bounded_and_do_not_block_other_transactions(
    imports_without_workers: ImportRunner,
    list_owner: Owner,
    *,
    erased_address: str,
    erased_user_id: int,
    monkeypatch: pytest.MonkeyPatch,
    fill_tables: Callable[[int, int], None],
) -> None:
    set_small_batches(monkeypatch)
    list_ids = [imports_without_workers.new_list(list_owner) for _ in range(5)]
    for list_id in list_ids:
        join_list(imports_without_workers, list_id, erased_user_id)
    fill_tables(list_ids[0], ROWS_PER_TABLE)
    job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    progress = [0]
    record = record_progress

    def record_and_check_locks(uow: UnitOfWork, lease: Lease, *, done: int) -> None:
        record(uow, lease, done=done)
        progress.append(done)
        # During an erasure, another transaction can lock the person, as a login does.
        lock = "SELECT 1 FROM users WHERE id = %s FOR NO KEY UPDATE NOWAIT"
        assert imports_without_workers.stack.query(lock, erased_user_id) == [(1,)]

    monkeypatch.setattr("services.privacy.erasure.record_progress", record_and_check_locks)
    erased = finish(imports_without_workers.resources, job_id)
    assert (erased.subscriptions, erased.attachments, erased.jobs) == (
        5,
        ROWS_PER_TABLE,
        ROWS_PER_TABLE,
    )
    assert count_unerased_rows(imports_without_workers.stack, erased_user_id) == {}
    batches = [after - before for before, after in pairwise(progress)]
    assert max(batches) == MAX_BATCH_ROWS
    assert len(batches) > 5 * ROWS_PER_TABLE / MAX_BATCH_ROWS


def test_erasure_resumes_after_worker_crashes_and_counts_each_row_once(
    *,
    imports_without_workers: ImportRunner,
    owned_list_id: int,
    erased_address: str,
    erased_user_id: int,
    monkeypatch: pytest.MonkeyPatch,
    fill_tables: Callable[[int, int], None],
) -> None:
    set_small_batches(monkeypatch)
    join_list(imports_without_workers, owned_list_id, erased_user_id)
    fill_tables(owned_list_id, ROWS_PER_TABLE)
    job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    record = record_progress
    call_count = [0]

    def record_and_lose_lease(uow: UnitOfWork, lease: Lease, *, done: int) -> None:
        record(uow, lease, done=done)
        call_count[0] += 1
        if call_count[0] % 3 == 0:
            # The exception rolls the transaction back, as a crash of the process would.
            raise LeaseLost(job_id)

    monkeypatch.setattr("services.privacy.erasure.record_progress", record_and_lose_lease)
    while (lease := claim(imports_without_workers.resources, job_id)) is not None:
        try:
            take_turn(imports_without_workers.resources, lease)
        except LeaseLost:
            with imports_without_workers.resources.unit_of_work() as uow:
                hand_back_job(uow, lease)
    erased = finish(imports_without_workers.resources, job_id)
    assert (erased.subscriptions, erased.attachments, erased.jobs) == (
        1,
        ROWS_PER_TABLE,
        ROWS_PER_TABLE,
    )
    assert count_unerased_rows(imports_without_workers.stack, erased_user_id) == {}
    [(counts,)] = imports_without_workers.stack.query(
        "SELECT counts FROM erasures WHERE user_id = %s", erased_user_id
    )
    assert isinstance(counts, dict)
    # The counts omit the event that records that the person joined the list, because this event
    # contains no personal data to erase.
    assert (counts["events"], counts["acts"], counts["idempotency"]) == (
        ROWS_PER_TABLE,
        ROWS_PER_TABLE,
        ROWS_PER_TABLE,
    )


def test_command_and_worker_that_erase_memberships_at_once_count_each_membership_once(
    imports_without_workers: ImportRunner,
    list_owner: Owner,
    erased_address: str,
    erased_user_id: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_small_batches(monkeypatch)
    resources = imports_without_workers.resources
    list_ids = [imports_without_workers.new_list(list_owner) for _ in range(9)]
    for list_id in list_ids:
        join_list(imports_without_workers, list_id, erased_user_id)
    job_id = erasure.begin_erasure(resources, erased_address)
    with ThreadPoolExecutor(3) as executor:
        commands = [executor.submit(erasure.end_memberships, resources, job_id) for _ in range(2)]
        erased = executor.submit(finish, resources, job_id).result()
        for command in commands:
            command.result()
    assert erased.subscriptions == len(list_ids)
    query = "SELECT count(*) FROM subscription_events WHERE user_id = %s AND action = 'erased'"
    assert imports_without_workers.stack.query(query, erased_user_id) == [(len(list_ids),)]


def test_person_marked_for_erasure_loses_access_and_file_visibility_immediately(
    imports_without_workers: ImportRunner,
    owned_list_id: int,
    erased_address: str,
    erased_user_id: int,
    fill_tables: Callable[[int, int], None],
) -> None:
    own_list_id = imports_without_workers.new_list(Owner(erased_user_id, erased_address, ""))
    task = imports_without_workers.import_members(
        Owner(erased_user_id, erased_address, ""), own_list_id, csv_of([["nobody", ""]])
    )
    with imports_without_workers.resources.unit_of_work() as uow:
        job = exports.enqueue_export(
            uow, AccountId(erased_user_id), lists.get_list(uow, own_list_id), ExportKind.MEMBERS
        )
        export_id = job.subject_id
    imports_without_workers.stack.query(
        "UPDATE exports SET size = 1, finished_at = now() WHERE id = %s", export_id
    )
    with imports_without_workers.resources.unit_of_work() as uow:
        lists.archive_list(uow, lists.get_list(uow, own_list_id))
    fill_tables(owned_list_id, 1)
    name = random_hash_id()
    update = "UPDATE attachments SET filename = %s, hash_id = %s WHERE user_id = %s"
    imports_without_workers.stack.query(update, f"{name}.webp", name, erased_user_id)
    with imports_without_workers.resources.unit_of_work() as uow:
        media, _ = records.find_media(uow, f"{name}.webp")
        assert media.user_id == erased_user_id
        assert exports.get_finished_export(uow, export_id or 0)
    assert rejected_rows.stream_rejected_rows(imports_without_workers.resources, task.id)
    erasure.begin_erasure(imports_without_workers.resources, erased_address)
    with imports_without_workers.resources.unit_of_work() as uow:
        for code, look_up in (
            ("media.not_found", lambda: records.find_media(uow, f"{name}.webp")),
            ("export.not_found", lambda: exports.get_finished_export(uow, export_id or 0)),
            (
                "import.errors_gone",
                lambda: rejected_rows.stream_rejected_rows(
                    imports_without_workers.resources, task.id
                ),
            ),
            ("user.not_found", lambda: accounts.get_user_by_email(uow, erased_address)),
            ("user.not_found", lambda: create_list(imports_without_workers, uow, erased_user_id)),
        ):
            with pytest.raises(DomainError) as error:
                look_up()
            assert error.value.code == code


def create_list(imports_without_workers: ImportRunner, uow: UnitOfWork, user_id: int) -> None:
    caller = Caller(AccountId(user_id), PersonId(user_id), frozenset(), unrestricted=True, key_id=0)
    attributes = {"title": "Late", "slug": random_hash_id()}
    lists.create_own_list(uow, caller, **attributes, fields={}, providers=[])


def test_owner_who_adds_the_address_during_its_erasure_creates_a_new_person(
    imports_without_workers: ImportRunner,
    owned_list_id: int,
    erased_address: str,
    erased_user_id: int,
) -> None:
    join_list(imports_without_workers, owned_list_id, erased_user_id)
    job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    edit = MemberEdit({"name": "Ada"}, AttributeChanges())

    def put(id_or_address: PersonId | str) -> int:
        with imports_without_workers.resources.unit_of_work() as uow:
            mailing_list = lists.get_list(uow, owned_list_id)
            return members.upsert_member(uow, mailing_list, id_or_address, edit, OWNER).user_id

    with pytest.raises(DomainError, match="not a member of the list"):
        put(PersonId(erased_user_id))
    new_user_id = put(erased_address)
    assert new_user_id != erased_user_id
    finish(imports_without_workers.resources, job_id)
    assert put(erased_address) == new_user_id


def test_list_mail_is_not_sent_to_a_person_under_erasure(
    imports_without_workers: ImportRunner,
    list_owner: Owner,
    owned_list_id: int,
    erased_address: str,
    erased_user_id: int,
) -> None:
    stranger = Actor(ActorKind.STRANGER, Via.CHALLENGE)
    with imports_without_workers.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, owned_list_id)
        mailing_list.confirm_required = True
        sign_up.request_subscription(uow, mailing_list, erased_address, stranger)
    erasure.begin_erasure(imports_without_workers.resources, erased_address)
    [(job_id,)] = imports_without_workers.stack.query(
        "SELECT j.id FROM jobs j JOIN subscriptions s ON s.id = j.subject_id"
        " WHERE j.kind = 'subscription.mail_confirmation' AND s.user_id = %s",
        erased_user_id,
    )
    lease = imports_without_workers.lease(int(str(job_id)))
    mails.send_confirmation(imports_without_workers.resources, lease, ForbiddenMailer())
    assert imports_without_workers.job(int(str(job_id))).result == {"sent": False}


def test_opt_out_blocks_import_of_the_address_during_its_erasure(
    imports_without_workers: ImportRunner,
    list_owner: Owner,
    owned_list_id: int,
    erased_address: str,
    erased_user_id: int,
) -> None:
    join_list(imports_without_workers, owned_list_id, erased_user_id)
    with imports_without_workers.resources.unit_of_work() as uow:
        person = uow.session.get_one(User, erased_user_id)
        mailing_list = lists.get_list(uow, owned_list_id)
        unsubscribe.unsubscribe_member(uow, mailing_list, person, READER)
    job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    task = imports_without_workers.import_members(
        list_owner, owned_list_id, csv_of([[erased_address, ""]])
    )
    assert (task.opted_out, task.added) == (1, 0)
    # If a new person with the erased address opts out during the erasure, the opt-out is stored for
    # the new person.
    with imports_without_workers.resources.unit_of_work() as uow:
        new_person = accounts.find_or_create_person(uow, erased_address)
        mailing_list = lists.get_list(uow, owned_list_id)
        unsubscribe.unsubscribe_member(uow, mailing_list, new_person, READER)
    finish(imports_without_workers.resources, job_id)
    stored_opt_outs = imports_without_workers.stack.query(
        "SELECT user_id, kind FROM opt_outs WHERE list_id = %s", owned_list_id
    )
    assert stored_opt_outs == [(new_person.id, OptOutKind.LIST)]


def test_repeated_erasure_request_reuses_its_job_until_the_erasure_has_finished(
    imports_without_workers: ImportRunner, erased_address: str, erased_user_id: int
) -> None:
    job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    assert (
        erasure.begin_erasure(imports_without_workers.resources, erased_address.upper()) == job_id
    )
    imports_without_workers.stack.query(
        "UPDATE jobs SET status = 'failed', finished_at = now(), error ="
        ' \'{"kind": "internal", "code": "job.broke", "message": "It broke."}\' WHERE id = %s',
        job_id,
    )
    assert erasure.begin_erasure(imports_without_workers.resources, erased_address) == job_id
    assert imports_without_workers.job(job_id).status == JobStatus.QUEUED
    imports_without_workers.stack.query("DELETE FROM jobs WHERE id = %s", job_id)
    second_job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    assert second_job_id != job_id
    assert finish(imports_without_workers.resources, second_job_id).user_id == erased_user_id
    with pytest.raises(DomainError, match=erased_address):
        erasure.begin_erasure(imports_without_workers.resources, erased_address)
    erasure_rows = imports_without_workers.stack.query(
        "SELECT address_hmac, stage, finished_at IS NOT NULL FROM erasures WHERE user_id = %s",
        erased_user_id,
    )
    assert erasure_rows == [(None, None, True)]


def test_rows_written_by_slow_requests_after_an_erasure_are_erased_an_hour_later(
    imports_without_workers: ImportRunner,
    owned_list_id: int,
    erased_address: str,
    erased_user_id: int,
    fill_tables: Callable[[int, int], None],
) -> None:
    first_job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    finish(imports_without_workers.resources, first_job_id)
    fill_tables(owned_list_id, 3)
    [(job_id,)] = imports_without_workers.stack.query(
        "SELECT job_id FROM erasures WHERE user_id = %s", erased_user_id
    )
    due_query = (
        "SELECT run_at BETWEEN now() + '59 min' AND now() + '1 h', sends FROM jobs WHERE id = %s"
    )
    assert imports_without_workers.stack.query(due_query, job_id) == [(True, 0)]
    assert claim(imports_without_workers.resources, int(str(job_id))) is None
    imports_without_workers.stack.query("UPDATE jobs SET run_at = now() WHERE id = %s", job_id)
    finish(imports_without_workers.resources, int(str(job_id)))
    assert count_unerased_rows(imports_without_workers.stack, erased_user_id) == {}
    # The second erasure job hasn't created a third erasure job.
    count_query = "SELECT count(*) FROM jobs WHERE kind = 'person.erase' AND subject_id = %s"
    assert imports_without_workers.stack.query(count_query, erased_user_id) == [(2,)]


def test_erasure_of_a_locked_person_times_out_and_succeeds_after_unlock(
    imports_without_workers: ImportRunner,
    erased_address: str,
    erased_user_id: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erasure, "MAX_WAIT_SECONDS", 0.0)
    with imports_without_workers.resources.unit_of_work() as uow:
        uow.session.get(User, erased_user_id, with_for_update=True)
        with pytest.raises(Exception, match="lock timeout"):
            erasure.begin_erasure(imports_without_workers.resources, erased_address)
    erase(imports_without_workers.resources, erased_address)


def test_erasure_is_retried_when_an_import_locks_the_list(
    imports_without_workers: ImportRunner,
    owned_list_id: int,
    erased_address: str,
    erased_user_id: int,
) -> None:
    join_list(imports_without_workers, owned_list_id, erased_user_id)
    job_id = erasure.begin_erasure(imports_without_workers.resources, erased_address)
    lease = imports_without_workers.lease(job_id)
    with imports_without_workers.resources.unit_of_work() as uow:
        locks.lock_list(uow, owned_list_id)
        with pytest.raises(TransientError, match="changing the list"):
            erasure.run_erasure(imports_without_workers.resources, lease)
    with imports_without_workers.resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    assert finish(imports_without_workers.resources, job_id).subscriptions == 1


def test_import_undo_waits_for_a_concurrent_erasure_without_deadlock(
    imports_without_workers: ImportRunner,
    list_owner: Owner,
    owned_list_id: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    people = new_addresses(3)
    before, after = (csv_of([[each, name] for each in people]) for name in ("Before", "After"))
    imports_without_workers.import_members(list_owner, owned_list_id, before)
    task = imports_without_workers.import_members(
        list_owner, owned_list_id, after, on_existing="update"
    )
    job_id = imports_without_workers.begin_undo(list_owner, task.id)
    deadlocks_before = deadlocks(imports_without_workers.stack)
    change_record = changes.change_record
    waits_query = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )
    with ThreadPoolExecutor(1) as thread:
        undo_jobs = list[Future[Job]]()

        def change_during_undo(*args: Any, **values: Any) -> bool:
            # The erasure has deleted the values that the member had before the import, but hasn't
            # locked the member's subscription yet.
            undo_jobs.append(thread.submit(imports_without_workers.work, job_id))
            eventually(
                lambda: imports_without_workers.stack.query(waits_query), what="the undo's wait"
            )
            return change_record(*args, **values)

        monkeypatch.setattr(changes, "change_record", change_during_undo)
        erase(imports_without_workers.resources, people[0])
        assert undo_jobs[0].result(60).status == "succeeded"
    assert deadlocks(imports_without_workers.stack) == deadlocks_before
    names_query = "SELECT name FROM subscriptions WHERE list_id = %s ORDER BY name"
    assert imports_without_workers.stack.query(names_query, owned_list_id) == [
        ("Before",),
        ("Before",),
        (None,),
    ]


# An erasure keeps the credit ledger and the records of erasures, because they contain no names.
KEPT_TABLES = {"credit_accounts", "credit_checkpoints", "credit_entries", "erasures"}
ERASED_TABLES = {
    *("account_mails", "api_keys", "attachments", "idempotency_records", "jobs", "list_reports"),
    *("mailed_links", "lists", "exports", "imports", "oauth_grants", "payment_orders"),
    *("composer_uses", "storage_uses", "totp_secrets", "recovery_codes", "passkeys"),
    *("denied_entries", "fields", "subscriptions", "subscription_events", "user_sessions"),
    *("bulk_actions", "webhook_endpoints", "former_addresses", "erased_denials", "senders"),
    *("address_opt_outs", "bounces"),
    # The erasure job needn't change these tables: the transaction that marks the person for erasure
    # already removes the person's id from them.
    *("opt_outs", "engagement_answers", "teammates"),
}


def test_erasure_covers_every_table_that_refers_to_a_person() -> None:
    key = User.__table__.c.id
    referring_tables = {
        table.name
        for table in Model.metadata.sorted_tables
        for foreign_key in table.foreign_keys
        if foreign_key.column is key
    }
    assert referring_tables == KEPT_TABLES | ERASED_TABLES


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ("user_id = 1", "user_id_id"),
        ("actor_id = 1 AND (ip IS NOT NULL OR request_id IS NOT NULL)", "actor_id_id"),
    ],
)
def test_erasure_finds_events_by_an_index_in_id_order(
    imports_without_workers: ImportRunner, condition: str, index: str
) -> None:
    plan = imports_without_workers.stack.query(
        "SET enable_seqscan = off; SET enable_sort = off; EXPLAIN SELECT id FROM"
        f" subscription_events WHERE {condition} AND id > 5 ORDER BY id LIMIT 10"
    )
    plan_text = "\n".join(str(line) for (line,) in plan)
    assert f"ix_subscription_events_{index}" in plan_text
    assert "Sort" not in plan_text
