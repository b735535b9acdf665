"""Tags and custom fields of members, which an import creates or changes."""

from contextlib import closing
from typing import Any

import pytest

from core.errors import TransientError
from devstack.harness.stack import Owner
from models import FieldType, MemberImport
from services.subscriptions import fields, tags
from services.subscriptions.bulk_files import open_stored_file
from services.subscriptions.imports.chunks import applying, chunks
from services.subscriptions.imports.file_rows import FileRows
from services.subscriptions.imports.formats.containers import open_ranged_file
from storage.unit_of_work import UnitOfWork
from tests.support.imports.importing import ImportRunner, counts_of, csv_of
from tests.support.lists.own_fields import create_company_and_age

HEADER = ("email", "name", "Company", "Age", "tags", "created_at")


def read_members(importing: ImportRunner, owner: Owner, list_id: int) -> dict[str, dict[str, Any]]:
    """Return the name, fields, tags and joining date of each active member, by address."""
    rows = importing.stack.query(
        "SELECT email, name, fields, tag_ids, joined_at FROM subscriptions"
        " WHERE list_id = %s AND status = 'active'",
        list_id,
    )
    with importing.resources.unit_of_work() as uow:
        owner_fields = fields.read_own_fields(uow, owner.account_id)
        tag_names = tags.find_tag_names(uow, [each for row in rows for each in row[3]])  # type: ignore[attr-defined]
    return {
        str(email): {
            "name": name,
            "fields": owner_fields.replace_ids(values),  # type: ignore[arg-type]
            "tags": {tag_names[each] for each in tag_ids if each in tag_names},  # type: ignore[attr-defined]
            "joined_at": None if joined_at is None else f"{joined_at:%Y-%m-%d}",
        }
        for email, name, values, tag_ids, joined_at in rows
    }


def test_import_ignores_tags_beyond_100_per_member(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    ada = people[0]
    tag_names = [f"tag {number}" for number in range(100)]

    def import_tag(tag: str, **options: Any) -> tuple[int, int, int]:
        file = csv_of([[ada, "Ada", "", "", tag, ""]], HEADER)
        task = importing.import_members(importer, list_id, file, **options)
        return task.already, task.updated, task.left_out

    def count_edits() -> int:
        query = "SELECT count(*) FROM subscription_events WHERE list_id = %s AND action = 'edited'"
        [(count,)] = importing.stack.query(query, list_id)
        return int(str(count))

    importing.import_members(
        importer, list_id, csv_of([[ada, "", "", "", ",".join(tag_names), ""]], HEADER)
    )
    before = importing.records(list_id)
    assert import_tag("one more") == (1, 0, 1)
    assert (importing.records(list_id), count_edits()) == (before, 0)
    # The import ignores the tag in the row, but still changes the member's name.
    assert import_tag("one more", on_existing="update") == (1, 1, 1)
    assert import_tag("one more", on_existing="update") == (1, 0, 1)
    assert count_edits() == 1
    with importing.resources.unit_of_work() as uow:
        ids = tags.find_tag_ids(uow, list_id, tag_names[:1], create=False)
        tags.delete_tag(uow, list_id, ids[tag_names[0]])
    assert import_tag("one more") == (1, 1, 0)
    assert read_members(importing, importer, list_id)[ada]["tags"] == {*tag_names[1:], "one more"}


def test_join_date_column_also_fills_a_field_with_the_same_name(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    with importing.resources.unit_of_work() as uow:
        fields.create_field(
            uow, importer.account_id, type=FieldType.TEXT, key="joined", label="Joined"
        )
    file = csv_of([[people[0], "2024-02-01"]], ("email", "Joined"))
    importing.import_members(importer, list_id, file)
    member = read_members(importing, importer, list_id)[people[0]]
    assert (member["joined_at"], member["fields"]) == ("2024-02-01", {"joined": "2024-02-01"})


def test_import_undo_keeps_field_values_changed_since_the_import(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    create_company_and_age(importing.resources, importer)
    ada = people[0]
    importing.import_members(importer, list_id, csv_of([[ada, "Ada", "", "1", "", ""]], HEADER))
    task = importing.import_members(
        importer, list_id, csv_of([[ada, "", "Acme", "", "x", ""]], HEADER)
    )
    importing.stack.query(
        "UPDATE subscriptions SET fields = fields || jsonb_build_object("
        " (SELECT id::text FROM fields WHERE user_id = %s AND key = 'age'), 2),"
        " updated_at = clock_timestamp() WHERE list_id = %s RETURNING 1",
        *(importer.user_id, list_id),
    )

    importing.undo(importer, task.id)

    assert read_members(importing, importer, list_id)[ada] == {
        "name": "Ada",
        "fields": {"age": 2},
        "tags": set(),
        "joined_at": None,
    }


def test_undo_of_a_later_import_restores_nothing_from_an_already_undone_import(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    create_company_and_age(importing.resources, importer)

    def import_row(word: str, tier: str) -> MemberImport:
        file = csv_of([[people[0], word, tier, word]], ("email", "name", "tier", "Company"))
        return importing.import_members(importer, list_id, file, on_existing="update")

    def read_member() -> tuple[str, str, dict[str, str]]:
        [(tier,)] = importing.stack.query(
            "SELECT type FROM subscriptions WHERE list_id = %s", list_id
        )
        member = read_members(importing, importer, list_id)[people[0]]
        return member["name"], str(tier), member["fields"]

    import_row("first", "free")
    earlier = import_row("second", "silver")
    later = import_row("third", "gold")
    importing.undo(importer, earlier.id)
    assert read_member() == ("third", "gold", {"company": "third"})
    importing.undo(importer, later.id)
    assert read_member() == ("first", "free", {"company": "first"})


def test_import_creates_fields_for_unknown_columns_only_once_despite_crashes(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    people: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = ("email", "Company", "Shoe size", "tags", "OPTIN_TIME", "OPTIN_IP")
    consent = ("2020-01-01 00:00:00", "192.0.2.7")
    file = csv_of(
        [
            [each, f"C{index}", str(index), f"t{index % 2}", *consent]
            for index, each in enumerate(people)
        ],
        header,
    )
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    job_id = importing.begin(importer, list_id, file, create_fields=True)
    # Simulate a worker that created the new member fields, and died before it imported any row.
    task = importing.of_job(job_id)
    with closing(open_ranged_file(open_stored_file(importing.resources, task))) as source:
        FileRows(importing.resources, task, source).close()
    apply_chunk = applying.apply_chunk
    applied_chunks = list[int]()

    def apply_and_die(uow: UnitOfWork, *arguments: Any) -> applying.AppliedChunk:
        result = apply_chunk(uow, *arguments)
        applied_chunks.append(arguments[1].number)
        if len(applied_chunks) % 2:
            raise TransientError("killed")
        return result

    monkeypatch.setattr(applying, "apply_chunk", apply_and_die)
    assert importing.work(job_id).status == "succeeded"

    task = importing.of_job(job_id)
    assert counts_of(task)["added"] == len(people)
    assert len(applied_chunks) > len(set(applied_chunks))
    with importing.resources.unit_of_work() as uow:
        types_by_key = {
            each.key: each.type for each in fields.list_fields(uow, importer.account_id)
        }
    assert types_by_key == {"company": "text", "shoe_size": "number"}
    members = read_members(importing, importer, list_id)
    for index, each in enumerate(people):
        assert members[each]["fields"] == {"company": f"C{index}", "shoe_size": index}
        assert members[each]["tags"] == {f"t{index % 2}"}
    assert importing.count_claims(task.id) == len(people)
    assert task.columns is not None
    assert task.columns["ignored_columns"] == []
    importing.undo(importer, task.id)
    assert importing.records(list_id) == []
    assert importing.count_claims(task.id) == 0


def test_import_that_needs_too_many_new_fields_is_rejected_before_any_write(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    header = ["email", *(f"Column {number}" for number in range(60))]
    file = csv_of([[people[0], *("x" for _ in range(60))]], header)

    job = importing.work(importing.begin(importer, list_id, file, create_fields=True))

    assert job.error is not None
    assert job.error["code"] == "import.too_many_fields"
    assert "'Column 0'" in job.error["message"]
    with importing.resources.unit_of_work() as uow:
        assert fields.list_fields(uow, importer.account_id) == []
    task = importing.import_members(importer, list_id, file)
    assert task.columns is not None
    assert len(task.columns["ignored_columns"]) == 60


def test_import_ignores_member_fields_of_other_owners(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    create_company_and_age(importing.resources, importing.stack.create_owner())
    task = importing.import_members(
        importer, list_id, csv_of([[people[0], "", "Acme", "1", "", ""]], HEADER)
    )

    assert task.columns is not None
    assert task.columns["ignored_columns"] == ["Company", "Age"]
    mapping = {"Company": "fields.company"}
    file = csv_of([[people[1], "", "Acme", "1", "", ""]], HEADER)
    job = importing.work(importing.begin(importer, list_id, file, mapping=mapping))
    assert job.error is not None
    assert job.error["code"] == "import.mapping_field"


def test_members_are_imported_without_new_tags_when_the_list_has_no_room_for_tags(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    people: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with importing.resources.unit_of_work() as uow:
        tags.find_tag_ids(uow, list_id, ["old"], create=True)
    monkeypatch.setattr(tags, "MAX_TAGS_OF_LIST", 1)
    task = importing.import_members(
        importer, list_id, csv_of([[people[0], "", "", "", "old,new", ""]], HEADER)
    )

    assert (task.added, task.left_out) == (1, 1)
    assert read_members(importing, importer, list_id)[people[0]]["tags"] == {"old"}
    assert "too many tags to add" in importing.not_added(task.id)[0][-1]


def test_imported_opt_out_gets_no_fields_and_no_consent_claims(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    create_company_and_age(importing.resources, importer)
    header = ("email", "status", "Company", "OPTIN_TIME")
    file = csv_of([[people[0], "unsubscribed", "Acme", "2020-01-01"]], header)
    task = importing.import_members(importer, list_id, file)

    assert task.opted_out == 1
    assert read_members(importing, importer, list_id) == {}
    assert importing.count_claims(task.id) == 0


def test_late_json_key_becomes_a_field_and_is_listed_among_the_columns(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    filler = "".join(f'{{"email": "f{n}.{people[0]}"}}\n' for n in range(2500))
    file = f'{filler}{{"email": "{people[1]}", "fields": {{"city": "Rome"}}, "odd": 1}}\n'
    task = importing.import_members(
        importer, list_id, file.encode(), name="m.jsonl", create_fields=True
    )

    assert task.columns is not None
    assert [each["name"] for each in task.columns["columns"]] == ["email", "fields.city", "odd"]
    assert read_members(importing, importer, list_id)[people[1]]["fields"] == {
        "city": "Rome",
        "odd": "1",
    }


def test_sample_cells_of_an_import_are_stored_encrypted(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str]
) -> None:
    task = importing.import_members(
        importer, list_id, csv_of([[people[0], "", "Acme", "", "", ""]], HEADER)
    )
    [(encrypted_samples,)] = importing.stack.query(
        "SELECT samples FROM imports WHERE id = %s", task.id
    )
    assert b"Acme" not in bytes(encrypted_samples)  # type: ignore[call-overload]
    assert people[0].encode() not in bytes(encrypted_samples)  # type: ignore[call-overload]
