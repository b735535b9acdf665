from collections import Counter
from datetime import timedelta

import pytest

from core import clock
from devstack.harness.stack import Owner
from models import MemberImport
from services.jobs.lease import LeaseLost
from services.jobs.transitions import hand_back_job, record_progress
from services.privacy import erasure
from services.subscriptions import count_merging, daily_figures, figures_verification, lists
from services.subscriptions.daily_figures import DayRange, FiguresBy
from services.subscriptions.imports import undo
from services.subscriptions.imports.chunks import applying, chunks
from services.subscriptions.imports.chunks.chunks import PreparedChunk
from services.subscriptions.imports.undo import IMPORT_UNDO
from services.subscriptions.member_attributes import AttributeChanges
from services.subscriptions.members import members, transfers, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.members import MemberEdit
from storage.unit_of_work import UnitOfWork
from tests.support.imports.importing import ImportRunner, csv_of
from tests.support.lists.tallying import read_daily_totals, read_figures
from tests.support.people.erasure import erase, finish

OWNER = Actor(ActorKind.OWNER, Via.LOGIN)
READER = Actor(ActorKind.USER, Via.TRACE)
EDIT = MemberEdit({"name": "Edited", "type": "gold"}, AttributeChanges())
HEADER = ("email", "name", "tier")


def build_file(people: list[str], name: str = "", tier: str = "") -> bytes:
    return csv_of([[each, name, tier] for each in people], HEADER)


def read_member(importing: ImportRunner, list_id: int, address: str) -> tuple[object, ...]:
    [row] = importing.stack.query(
        "SELECT s.status, s.name, s.type FROM subscriptions s JOIN users u ON u.id = s.user_id"
        " WHERE list_id = %s AND u.email = %s",
        *(list_id, address),
    )
    return row


def test_import_undo_keeps_members_changed_since_and_counts_them(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    importing.import_members(importer, list_id, build_file(people[:6]))
    for each in people[:6]:
        importing.remove(list_id, each)
    before = importing.records(list_id)
    other_list_id = importing.new_list(importer)
    task = importing.import_members(importer, list_id, build_file(people, "Imported", "silver"))
    # Change five people who were members before the import, and five whom the import added.
    for start in (0, 6):
        edited, unsubscribed, without_email, transferred, erased = people[start : start + 5]
        with importing.person(list_id, edited) as (uow, mailing_list, person):
            members.update_member(uow, mailing_list, person.id, EDIT, OWNER)
        with importing.person(list_id, unsubscribed) as (uow, mailing_list, person):
            unsubscribe.unsubscribe_member(uow, mailing_list, person, READER)
        with importing.person(list_id, without_email) as (uow, mailing_list, person):
            unsubscribe.set_email(uow, mailing_list, person, READER, enabled=False)
        with importing.person(list_id, transferred) as (uow, mailing_list, person):
            target = lists.get_list(uow, other_list_id)
            transfers.transfer_member(uow, mailing_list, target, person.id, actor=OWNER)
        erase(importing.resources, erased)
    result = importing.undo(importer, task.id)
    assert result == {"import_id": task.id, "undone": 2, "kept": 10}
    # After the import, nothing changed ``people[5]`` and ``people[11]``. The undo restores every
    # column of ``people[5]``, who was already on the list, and removes ``people[11]``, who wasn't.
    after = importing.records(list_id)
    assert before[5] in after
    assert not any(people[11] in row for row in after)
    assert read_member(importing, list_id, people[0]) == ("active", "Edited", "gold")
    assert read_member(importing, list_id, people[1]) == ("unsubscribed", None, "free")
    assert read_member(importing, list_id, people[2]) == ("active", None, "free")
    assert read_member(importing, list_id, people[7])[0] == "unsubscribed"
    assert {kind for *_, kind, _, _ in importing.opt_outs(list_id)} == {"list", "email"}
    nameable_rows = importing.stack.query(
        "SELECT 1 FROM subscriptions WHERE list_id = %s AND email IS NULL AND name IS NOT NULL",
        list_id,
    )
    assert nameable_rows == []
    assert importing.count(list_id) == len(importing.active(list_id))


def age_by_a_day(importing: ImportRunner, list_id: int) -> None:
    """Move everything that has happened on a list one day into the past."""
    for table in ("member_days", "member_day_deltas"):
        importing.stack.query(f"UPDATE {table} SET day = day - 1 WHERE list_id = %s", list_id)
    for column in ("created_at", "updated_at", "imported_at"):
        importing.stack.query(
            f"UPDATE subscriptions SET {column} = {column} - interval '1 day' WHERE list_id = %s",
            list_id,
        )
    for column in ("applied_at", "imported_at_before", "updated_at_before"):
        importing.stack.query(
            f"UPDATE import_changes AS c SET {column} = c.{column} - interval '1 day'"
            " FROM imports AS i WHERE i.id = c.import_id AND i.list_id = %s",
            list_id,
        )


def require_possible_figures(importing: ImportRunner, list_id: int) -> None:
    faults = figures_verification.verify_figures(importing.resources)
    assert [fault for fault in faults if fault.list_id == list_id] == []
    for days_ago in range(3):
        day = clock.now().date() - timedelta(days=days_ago)
        with importing.resources.unit_of_work() as uow:
            for dimension in FiguresBy:
                for figures in daily_figures.read_figures(
                    uow, list_id, DayRange(day, day), dimension
                ):
                    assert figures.joined >= 0
                    assert figures.left >= 0


def test_undone_import_changes_neither_joined_nor_left_of_any_day(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    importing.import_members(importer, list_id, build_file(people[:3]))
    importing.remove(list_id, people[0])
    age_by_a_day(importing, list_id)
    before = read_daily_totals(importing.resources, list_id)
    assert list(before.values()) == [(3, 1)]
    # The import adds three people, and reactivates a person who was removed.
    task = importing.import_members(importer, list_id, build_file(people[:6], "", "silver"))
    importing.remove(list_id, people[5])
    age_by_a_day(importing, list_id)
    with importing.resources.unit_of_work() as uow:
        count_merging.merge_batch(uow, count_merging.MEMBER_DAYS, max_changes=10_000)
    assert importing.undo(importer, task.id) == {
        "import_id": task.id,
        "undone": 3,
        "kept": 1,
    }
    # The person whom the undo kept still counts as joined and as left.
    today = clock.now().date()
    assert read_daily_totals(importing.resources, list_id) == {
        today - timedelta(days=2): (3, 1),
        today - timedelta(days=1): (1, 1),
    }
    require_possible_figures(importing, list_id)


def test_undone_import_changes_no_figures_of_tiers(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    importing.import_members(importer, list_id, build_file(people[:3]))
    importing.remove(list_id, people[0])
    before = read_figures(importing.resources, list_id, FiguresBy.TIER)
    task = importing.import_members(
        importer, list_id, build_file(people, "", "gold"), on_existing="update"
    )
    assert read_figures(importing.resources, list_id, FiguresBy.TIER) != before
    importing.undo(importer, task.id)
    assert read_figures(importing.resources, list_id, FiguresBy.TIER) == before


@pytest.mark.parametrize("is_member", [True, False])
def test_figures_stay_possible_if_imports_are_undone_in_the_order_of_the_imports(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str], *, is_member: bool
) -> None:
    importing.import_members(importer, list_id, build_file(people[:3]))
    if not is_member:
        for each in people[:3]:
            importing.remove(list_id, each)
    tasks = []
    for tier in ("silver", "gold"):
        age_by_a_day(importing, list_id)
        file = build_file(people[:3], "", tier)
        tasks.append(importing.import_members(importer, list_id, file, on_existing="update"))
    # The first undo keeps the reactivated members, because the second import has changed these
    # members. After the undo of the second import, the first undo is repeated.
    undone_first_again = [] if is_member else tasks[:1]
    for task in (*tasks, *undone_first_again):
        importing.undo(importer, task.id)
        require_possible_figures(importing, list_id)
    assert importing.count(list_id) == (3 if is_member else 0)
    days = read_daily_totals(importing.resources, list_id)
    assert list(days.values()) == ([(3, 0)] if is_member else [(3, 3)])


def test_two_imports_undone_in_reverse_order_restore_the_list_exactly(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    importing.import_members(importer, list_id, build_file(people[:6], "Before"))
    for each in people[:3]:
        importing.remove(list_id, each)
    before = importing.records(list_id)
    first = importing.import_members(
        importer, list_id, build_file(people[1:9], "A", "silver"), on_existing="update"
    )
    records_between = importing.records(list_id)
    second = importing.import_members(
        importer, list_id, build_file(people, "B", "gold"), on_existing="update"
    )
    assert (first.added, first.updated) == (5, 3)
    assert (second.added, second.updated) == (4, 8)
    assert importing.undo(importer, second.id)["undone"] == 4
    assert importing.records(list_id) == records_between
    assert importing.undo(importer, first.id)["undone"] == 5
    assert importing.records(list_id) == before


def test_killed_import_undo_resumes_and_counts_each_member_once(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    people: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    importing.import_members(importer, list_id, build_file(people[:6]))
    for each in people[:6]:
        importing.remove(list_id, each)
    before = importing.records(list_id)
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 5)
    task = importing.import_members(importer, list_id, build_file(people, "Imported", "gold"))
    monkeypatch.setattr(undo, "MEMBERS_PER_BATCH", 2)
    job_id = importing.begin_undo(importer, task.id)
    assert job_id is not None
    record = record_progress
    call_count = [0]

    def record_and_lose_lease(*args: object, **keywords: object) -> None:
        call_count[0] += 1
        record(*args, **keywords)  # type: ignore[arg-type]
        if call_count[0] % 2 == 0:
            # The exception rolls the transaction back, as a crash of the process would.
            raise LeaseLost(job_id)

    monkeypatch.setattr("services.subscriptions.undo.record_progress", record_and_lose_lease)
    for _ in range(20):
        lease = importing.claim(job_id)
        if lease is None:
            break
        try:
            IMPORT_UNDO.run(importing.resources, lease)
        except LeaseLost:
            with importing.resources.unit_of_work() as uow:
                hand_back_job(uow, lease)
    assert call_count[0] > 6
    assert importing.job(job_id).result == {"import_id": task.id, "undone": 12, "kept": 0}
    assert importing.records(list_id) == before


def test_person_erased_during_an_import_is_not_restored_by_the_import(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    people: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    importing.import_members(importer, list_id, build_file(people[:2], "Before"))
    write_rows = applying._write_rows
    erasures = list[int]()

    def erase_then_write(
        uow: UnitOfWork, task: MemberImport, counts: Counter[str], chunk: PreparedChunk
    ) -> None:
        # The import has looked up the people in the rows, but hasn't locked them yet.
        if not erasures:
            erasures.append(erasure.begin_erasure(importing.resources, people[0]))
        write_rows(uow, task, counts, chunk)

    monkeypatch.setattr(applying, "_write_rows", erase_then_write)
    task = importing.import_members(
        importer, list_id, build_file(people[:2], "New"), on_existing="update"
    )
    assert (task.added, task.updated) == (1, 1)
    erased = finish(importing.resources, erasures[0])
    erased_record = importing.stack.query(
        "SELECT status, name, email FROM subscriptions WHERE list_id = %s AND user_id = %s",
        *(list_id, erased.user_id),
    )
    assert erased_record == [("removed", None, None)]
